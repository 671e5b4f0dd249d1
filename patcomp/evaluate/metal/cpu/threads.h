// Threads, memory and tensors: every index is checked, and what goes wrong is printed before the process ends.
#pragma once
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>
#include "functions.h"

namespace metal_cpu {

typedef std::source_location place;
inline place here = place();  // the last line that indexed something
inline uint3 thread_now = uint3(0u);  // the position of the running thread

// what is wrong, as a line of fields that Python reads, and the end of the process
template <class... F>
[[noreturn]] void report(const char* kind, place where, const char* format, F... fields) {
  printf("%s\t%s\t%u\t%u,%u,%u\t", kind, where.file_name(), where.line(), thread_now.x, thread_now.y, thread_now.z);
  printf(format, fields...);
  printf("\n");
  fflush(stdout);
  _exit(3);
}

inline void on_signal(int number) {
  const char* kind = number == SIGXCPU ? "endless" : number == SIGFPE ? "division" : number == SIGSEGV || number == SIGBUS ? "pointer" : "local";
  report(kind, here, "%s", "");
}

inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

// memory that ends at a page that nobody may touch
inline char* guarded(size_t bytes) {
  size_t page = size_t(sysconf(_SC_PAGESIZE)), used = (bytes + 15) / 16 * 16, whole = (used + page - 1) / page * page;
  char* start = (char*)mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) report("memory", here, "%zu", bytes);
  mprotect(start + whole, page, PROT_NONE);
  return start + whole - used;
}

// an index with the line that it is written in
struct index {
  long value;
  place where;
  template <std::integral I>
  constexpr index(I given, place where = place::current()) : value(long(given)), where(where) {}
};

// ---- threadgroup memory ---------------------------------------------------------------------------

struct shared_block { char* start; size_t bytes; };
inline shared_block shared_blocks[256];
inline int shared_count = 0;

// memory of a threadgroup has no contents when the group starts: NaN, or -1
inline void forget_shared() {
  for (int i = 0; i < shared_count; ++i) __builtin_memset(shared_blocks[i].start, 0xff, shared_blocks[i].bytes);
}
inline char* new_shared(size_t bytes) {
  if (shared_count == 256) report("memory", here, "%zu", bytes);
  shared_block& made = shared_blocks[shared_count++] = {guarded(bytes), bytes};
  __builtin_memset(made.start, 0xff, bytes);
  return made.start;
}
template <class T>
T& shared_number() { return *(T*)new_shared(sizeof(T)); }

template <class T, size_t N, size_t... M>
struct shared_view {
  T* start;
  const char* name;
  decltype(auto) operator[](index i) const {
    here = i.where;
    if (i.value < 0 || i.value >= long(N)) report("shared", i.where, "%s\t%ld\t%zu", name, i.value, N);
    if constexpr (sizeof...(M) == 0) return (start[i.value]);
    else return shared_view<T, M...>{start + i.value * (M * ...), name};
  }
};
template <class T, size_t N, size_t... M>
struct shared_array : shared_view<T, N, M...> {
  explicit shared_array(const char* name) : shared_view<T, N, M...>{(T*)new_shared(sizeof(T) * (N * ... * M)), name} {}
};

// a pointer to threadgroup memory
template <class T>
struct shared_pointer {
  T *at, *first, *last;  // of the memory that it points into
  const char* name = "a pointer";
  shared_pointer(T* given) : at(given), first(given), last(given) {
    for (int i = 0; i < shared_count; ++i) {
      char *start = shared_blocks[i].start, *end = start + shared_blocks[i].bytes;
      if ((char*)given >= start && (char*)given <= end) first = (T*)start, last = (T*)end;
    }
  }
  template <size_t N, size_t... M>
  shared_pointer(const shared_view<T, N, M...>& of) : shared_pointer(of.start) { name = of.name; }
  T& operator[](index i) const {
    here = i.where;
    T* found = at + i.value;
    if (found < first || found >= last) report("shared", i.where, "%s\t%ld\t%td", name, found - first, last - first);
    return *found;
  }
  T& operator*() const { return (*this)[0]; }
  shared_pointer operator+(long by) const { shared_pointer moved = *this; moved.at += by; return moved; }
  shared_pointer operator-(long by) const { return *this + -by; }
  shared_pointer& operator+=(long by) { at += by; return *this; }
  shared_pointer& operator++() { return *this += 1; }
};
template <class T, size_t N, size_t... M>
shared_pointer<T> operator+(const shared_view<T, N, M...>& of, long by) { return shared_pointer<T>(of) + by; }

// ---- tensors ---------------------------------------------------------------------------------------

struct buffer {
  char* data;
  long bytes;
  int rank;
  long extents[16];
  uint32_t* lines;  // of a result, the line that last touched each element; a line of helpers has the highest bit
};
inline buffer buffers[31];  // Metal takes no more
inline int buffer_count = 0;

template <size_t>
using one_index = index;

template <class T, class Numbers>
struct indexed;
template <class T, size_t... I>
struct indexed<T, std::index_sequence<I...>> {
  static constexpr int rank = sizeof...(I);
  int number;
  T& operator[](one_index<I>... given) const {
    index at[] = {given...};
    const buffer& of = buffers[number];
    here = at[0].where;
    long flat = 0;
    for (int i = rank - 1; i >= 0; --i) {
      if (at[i].value < 0 || at[i].value >= of.extents[i]) {
        char text[400] = "";
        for (index each : at) snprintf(text + __builtin_strlen(text), 24, "%s%ld", *text ? "," : "", each.value);
        report("outside", at[0].where, "%d\t%s", number, text);
      }
      flat = flat * of.extents[i] + at[i].value;
    }
    if (of.lines) of.lines[flat] = at[0].where.line() | (*at[0].where.file_name() == 'h' ? 0x80000000u : 0u);
    return ((T*)of.data)[flat];
  }
  template <class... A>
    requires(sizeof...(A) != sizeof...(I))
  T& operator[](A...) const {
    static_assert(sizeof...(A) == sizeof...(I), "a tensor takes one index for each dimension, the innermost one first");
  }
  int get_extent(int i) const { return int(buffers[number].extents[i]); }
  static constexpr int get_rank() { return rank; }
};

// ---- threads of a group that wait for each other -----------------------------------------------------

enum class waits { ready, group, simd, ended };
struct fiber {
  ucontext_t context;
  waits state;
  place where;
  uint3 position, in_group;
  uint number;
  int parity;
  uint active;  // the lanes that were at the last SIMD function, a bit each
};
constexpr size_t stack_bytes = 256 * 1024;
constexpr uint simd_size = 32;
inline fiber fibers[1024];  // Metal takes no more threads in a group
inline size_t fiber_count = 0;
inline char* stacks[1024];
inline fiber* running = nullptr;
inline ucontext_t scheduler;
inline void (*body_of_thread)() = nullptr;
struct lane_value { alignas(16) char bytes[32]; };
inline lane_value lanes[2][1024];

inline void wait_for(waits what, place where) {
  running->state = what, running->where = where;
  swapcontext(&running->context, &scheduler);
}

inline void fiber_main() {
  body_of_thread();
  running->state = waits::ended;
  swapcontext(&running->context, &scheduler);
}

inline bool same(place a, place b) { return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name(); }

// lets the waiting threads of a range go on if all that have not ended wait at one line; returns whether they do
inline bool release(size_t from, size_t to, waits what) {
  fiber* first = nullptr;
  uint active = 0;
  for (size_t i = from; i < to; ++i) {
    fiber& each = fibers[i];
    if (each.state == waits::ended) continue;
    if (each.state != what || (first && !same(first->where, each.where))) return false;
    first = &each;
    active |= 1u << (i % simd_size);
  }
  for (size_t i = from; first && i < to; ++i)
    if (fibers[i].state == what) fibers[i].state = waits::ready, fibers[i].active = active;
  return first;
}

// runs the threads of a group, each until it waits, in rising or falling order
inline void run_cooperatively(bool falling) {
  size_t count = fiber_count;
  for (size_t i = 0; i < count; ++i) {
    if (!stacks[i]) stacks[i] = guarded(stack_bytes);
    getcontext(&fibers[i].context);
    fibers[i].context.uc_stack.ss_sp = stacks[i], fibers[i].context.uc_stack.ss_size = stack_bytes;
    makecontext(&fibers[i].context, fiber_main, 0);
  }
  for (size_t ended = 0; ended < count;) {
    ended = 0;
    for (size_t k = 0; k < count; ++k) {
      fiber& each = fibers[falling ? count - 1 - k : k];
      if (each.state == waits::ready) running = &each, thread_now = each.position, swapcontext(&scheduler, &each.context);
      ended += each.state == waits::ended;
    }
    if (ended == count) break;
    bool any_goes_on = false;
    for (size_t from = 0; from < count; from += simd_size)
      any_goes_on |= release(from, least(count, from + simd_size), waits::simd);
    if (any_goes_on) continue;
    for (size_t i = 0; ended && i < count; ++i)
      if (fiber& each = fibers[i]; each.state == waits::group) thread_now = each.position, report("barrier", each.where, "%s", "ended");
    if (release(0, count, waits::group)) continue;
    for (size_t i = 0; i < count; ++i) {
      fiber& each = fibers[i];
      if (each.state == waits::ended) continue;
      thread_now = each.position;
      report(each.state == waits::simd ? "divergent" : "barrier", each.where, "%s", "apart");
    }
  }
}

// the values that the threads of a SIMD group have at one line: `of(lane)` calls a function with each active lane's
template <class T>
struct lane_values {
  T own;
  uint first, lane, active_lanes;
  lane_value* values;
  lane_values(T value, place where) : own(value) {
    static_assert(sizeof(T) <= sizeof(lane_value));
    values = lanes[running->parity ^= 1];
    __builtin_memcpy(values[running->number].bytes, &value, sizeof(T));
    first = running->number / simd_size * simd_size, lane = running->number - first;
    wait_for(waits::simd, where);
    active_lanes = running->active;
  }
  bool active(uint i) const { return i < simd_size && active_lanes >> i & 1; }
  T operator[](uint i) const {
    T value;
    if (active(i)) __builtin_memcpy(&value, values[first + i].bytes, sizeof(T));
    else __builtin_memset(&value, 0xff, sizeof(T));  // undefined in Metal
    return value;
  }
  template <class F>
  T folded(F function, uint end = simd_size) const {
    T result{};
    bool begun = false;
    for (uint i = 0; i < end; ++i)
      if (active(i)) result = begun ? T(function(result, (*this)[i])) : (*this)[i], begun = true;
    return result;
  }
};

}  // namespace metal_cpu

namespace metal {
struct tensor_handle {};
template <class I, int R>
struct dextents {};
template <class T, class E, class H>
struct tensor;
template <class T, class I, int R, class H>
struct tensor<T, dextents<I, R>, H> : metal_cpu::indexed<T, std::make_index_sequence<R>> {};

enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_texture };
inline mem_flags operator|(mem_flags a, mem_flags) { return a; }
inline void threadgroup_barrier(mem_flags, cpu::place where = cpu::place::current()) { cpu::wait_for(cpu::waits::group, where); }
inline void simdgroup_barrier(mem_flags, cpu::place where = cpu::place::current()) { cpu::wait_for(cpu::waits::simd, where); }

#define METAL_SIMD_FOLD(NAME, RESULT)                                                         \
  template <class T>                                                                          \
  T simd_##NAME(T value, cpu::place where = cpu::place::current()) {                                    \
    return cpu::lane_values<T>(value, where).folded([](T a, T b) { return RESULT; });              \
  }
METAL_SIMD_FOLD(sum, a + b)
METAL_SIMD_FOLD(product, a * b)
METAL_SIMD_FOLD(max, max(a, b))
METAL_SIMD_FOLD(min, min(a, b))
METAL_SIMD_FOLD(and, a & b)
METAL_SIMD_FOLD(or, a | b)
METAL_SIMD_FOLD(xor, a ^ b)
inline bool simd_all(bool value, cpu::place where = cpu::place::current()) {
  return cpu::lane_values<bool>(value, where).folded([](bool a, bool b) { return a && b; });
}
inline bool simd_any(bool value, cpu::place where = cpu::place::current()) {
  return cpu::lane_values<bool>(value, where).folded([](bool a, bool b) { return a || b; });
}
template <class T>
T simd_prefix_inclusive_sum(T value, cpu::place where = cpu::place::current()) {
  cpu::lane_values<T> all(value, where);
  return all.folded([](T a, T b) { return a + b; }, all.lane + 1);
}
template <class T>
T simd_prefix_exclusive_sum(T value, cpu::place where = cpu::place::current()) {
  cpu::lane_values<T> all(value, where);
  return all.folded([](T a, T b) { return a + b; }, all.lane);
}
template <class T>
T simd_shuffle(T value, uint lane, cpu::place where = cpu::place::current()) { return cpu::lane_values<T>(value, where)[lane]; }
template <class T>
T simd_broadcast(T value, uint lane, cpu::place where = cpu::place::current()) { return cpu::lane_values<T>(value, where)[lane]; }
template <class T>
T simd_broadcast_first(T value, cpu::place where = cpu::place::current()) {
  cpu::lane_values<T> all(value, where);
  uint i = 0;
  while (!all.active(i)) ++i;
  return all[i];
}
template <class T>
T simd_shuffle_xor(T value, uint mask, cpu::place where = cpu::place::current()) {
  cpu::lane_values<T> all(value, where);
  return all[all.lane ^ mask];
}
template <class T>
T simd_shuffle_down(T value, uint by, cpu::place where = cpu::place::current()) {
  cpu::lane_values<T> all(value, where);
  return all.lane + by < cpu::simd_size ? all[all.lane + by] : value;
}
template <class T>
T simd_shuffle_up(T value, uint by, cpu::place where = cpu::place::current()) {
  cpu::lane_values<T> all(value, where);
  return all.lane >= by ? all[all.lane - by] : value;
}
inline bool simd_is_first(cpu::place where = cpu::place::current()) {
  cpu::lane_values<uint> all(0, where);
  uint i = 0;
  while (!all.active(i)) ++i;
  return all.lane == i;
}
}  // namespace metal
namespace mpp { namespace tensor_ops {} }
