// Runs one Metal function on the CPU: `launch(function, {attributes})` reads buffers from a file, runs every thread of the
// grid in rising and then in falling order, and writes what each order left in the buffers.
#pragma once
#include <stdlib.h>
#include "threads.h"

namespace metal_cpu {

inline uint3 grid, group;  // threads in the grid, and in a whole group
inline uint3 group_now, group_size, in_group_now;
inline uint number_now;

inline uint3 groups() { return (grid + group - 1u) / group; }

// what Metal passes for an attribute; numbers are in `x`
inline uint3 filled(const char* attribute) {
  uint count = group_size.x * group_size.y * group_size.z;
  uint whole = group.x * group.y * group.z;
  if (!__builtin_strcmp(attribute, "thread_position_in_grid")) return thread_now;
  if (!__builtin_strcmp(attribute, "thread_position_in_threadgroup")) return in_group_now;
  if (!__builtin_strcmp(attribute, "thread_index_in_threadgroup")) return uint3(number_now);
  if (!__builtin_strcmp(attribute, "threadgroup_position_in_grid")) return group_now;
  if (!__builtin_strcmp(attribute, "threads_per_grid")) return grid;
  if (!__builtin_strcmp(attribute, "threadgroups_per_grid")) return groups();
  if (!__builtin_strcmp(attribute, "threads_per_threadgroup")) return group_size;
  if (!__builtin_strcmp(attribute, "dispatch_threads_per_threadgroup")) return group;
  if (!__builtin_strcmp(attribute, "thread_index_in_simdgroup")) return uint3(number_now % simd_size);
  if (!__builtin_strcmp(attribute, "simdgroup_index_in_threadgroup")) return uint3(number_now / simd_size);
  if (!__builtin_strcmp(attribute, "threads_per_simdgroup") || !__builtin_strcmp(attribute, "thread_execution_width")) return uint3(simd_size);
  if (!__builtin_strcmp(attribute, "simdgroups_per_threadgroup")) return uint3((count + simd_size - 1) / simd_size);
  if (!__builtin_strcmp(attribute, "dispatch_simdgroups_per_threadgroup")) return uint3((whole + simd_size - 1) / simd_size);
  report("attribute", here, "%s", attribute);
}

inline const char* const* attributes;

template <class A>
struct argument {  // a number or a vector that Metal fills
  static A of(size_t i) {
    uint3 value = filled(attributes[i - size_t(buffer_count)]);
    if constexpr (vector<A>) {
      A result;
      for (int k = 0; k < A::count; ++k) result[k] = typename A::element(value[k]);
      return result;
    } else return A(value.x);
  }
};
template <class T>
struct argument<const T&> {
  static const T& of(size_t i) { return *(const T*)buffers[i].data; }
};
template <class T, class E, class H>
struct argument<metal::tensor<T, E, H>> {
  static metal::tensor<T, E, H> of(size_t i) {
    metal::tensor<T, E, H> made;
    made.number = int(i);
    return made;
  }
};

template <class... A, size_t... I>
void call(void (*function)(A...), std::index_sequence<I...>) { function(argument<A>::of(I)...); }

template <auto function>
void run_thread() {
  if (running) in_group_now = running->in_group, number_now = running->number;
  []<class... A>(void (*f)(A...)) { call(f, std::index_sequence_for<A...>()); }(function);
}

inline void run_group(bool cooperative, bool falling) {
  uint3 start = group_now * group;
  group_size = metal::min(group, grid - start);
  uint count = group_size.x * group_size.y * group_size.z;
  forget_shared();
  fiber_count = count;
  for (uint k = 0; k < count; ++k) {
    uint i = falling ? count - 1 - k : k;
    uint3 inside(i % group_size.x, i / group_size.x % group_size.y, i / group_size.x / group_size.y);
    if (cooperative) {
      fiber& each = fibers[i];
      each.state = waits::ready, each.position = start + inside, each.in_group = inside, each.number = i, each.parity = 0;
    } else {
      thread_now = start + inside, in_group_now = inside, number_now = i;
      body_of_thread();
    }
  }
  if (cooperative) run_cooperatively(falling);
}

inline void run_grid(bool cooperative, bool falling) {
  uint3 all = groups();
  uint count = all.x * all.y * all.z;
  for (uint k = 0; k < count; ++k) {
    uint i = falling ? count - 1 - k : k;
    group_now = uint3(i % all.x, i / all.x % all.y, i / all.x / all.y);
    run_group(cooperative, falling);
  }
}

// The file has 64-bit numbers: seconds, grid, group, the counts of buffers and of results, then bytes, rank and extents
// (innermost first) of each buffer, and then the bytes of all. The answer has the bytes of all buffers after each order,
// each followed by the lines of the results.
template <auto function>
int launch(bool cooperative, const char* const* filled_by_metal, char** files) {
  FILE* in = fopen(files[1], "rb");
  auto number = [in] {
    int64_t value = 0;
    if (fread(&value, 8, 1, in) != 1) _exit(5);
    return value;
  };
  int64_t seconds = number();
  for (int i = 0; i < 3; ++i) grid[i] = uint(number());
  for (int i = 0; i < 3; ++i) group[i] = uint(number());
  int count = buffer_count = int(number()), results = int(number());
  for (int i = 0; i < count; ++i) {
    buffer& each = buffers[i];
    each.bytes = number(), each.rank = int(number());
    long elements = 1;
    for (int axis = 0; axis < each.rank; ++axis) elements *= each.extents[axis] = number();
    each.data = guarded(size_t(each.bytes));
    each.lines = i + results < count ? nullptr : (uint32_t*)calloc(size_t(elements), 4);
  }
  char* given[31];
  for (int i = 0; i < count; ++i) {
    given[i] = (char*)malloc(size_t(buffers[i].bytes));
    if (fread(given[i], 1, size_t(buffers[i].bytes), in) != size_t(buffers[i].bytes)) _exit(5);
  }
  attributes = filled_by_metal;
  body_of_thread = run_thread<function>;

  static char signal_stack[64 * 1024];
  stack_t alternative = {};
  alternative.ss_sp = signal_stack, alternative.ss_size = sizeof(signal_stack);
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_signal, action.sa_flags = SA_ONSTACK;
  for (int each : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGXCPU}) sigaction(each, &action, nullptr);
  rlimit limit = {rlim_t(seconds), rlim_t(seconds + 5)};
  setrlimit(RLIMIT_CPU, &limit);

  FILE* out = fopen(files[2], "wb");
  for (bool falling : {false, true}) {
    for (int i = 0; i < count; ++i) __builtin_memcpy(buffers[i].data, given[i], size_t(buffers[i].bytes));
    run_grid(cooperative, falling);
    for (int i = 0; i < count; ++i) fwrite(buffers[i].data, 1, size_t(buffers[i].bytes), out);
    for (int i = 0; i < count; ++i) {
      const buffer& each = buffers[i];
      long elements = 1;
      for (int axis = 0; axis < each.rank; ++axis) elements *= each.extents[axis];
      if (each.lines) fwrite(each.lines, 4, size_t(elements), out);
    }
  }
  return fclose(out) ? 5 : 0;
}

}  // namespace metal_cpu

// the address spaces come last, because headers of C++ use these words
#define device
#define constant const
#define thread
#define threadgroup
