// The types that Metal has without a header: scalars, vectors and address spaces.
#pragma once
// few headers, because they take most of the compiler's time; and none that declares what Metal does not have, as `erf`
#include <bit>
#include <concepts>
#include <float.h>
#include <limits>
#include <limits.h>
#include <source_location>
#include <stddef.h>
#include <stdint.h>
#include <type_traits>
#include <utility>

#ifndef __cpp_multidimensional_subscript
#error "this compiler has no subscripts with several indices; g++ 12, clang++ 15 and later ones have"
#endif

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

// bfloat16, the upper half of a float; arithmetic on it is arithmetic on floats
struct bfloat {
  uint16_t bits;
  bfloat() = default;
  template <class T>
    requires std::is_arithmetic_v<T> || std::same_as<T, half>
  constexpr bfloat(T value) {
    uint32_t wide = std::bit_cast<uint32_t>(float(value));
    bool is_nan = (wide & 0x7fffffffu) > 0x7f800000u;
    bits = uint16_t(is_nan ? (wide >> 16) | 0x40 : (wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
  }
  constexpr operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
  bfloat& operator+=(float v) { return *this = bfloat(float(*this) + v); }
  bfloat& operator-=(float v) { return *this = bfloat(float(*this) - v); }
  bfloat& operator*=(float v) { return *this = bfloat(float(*this) * v); }
  bfloat& operator/=(float v) { return *this = bfloat(float(*this) / v); }
};

namespace metal_cpu {

template <class T>
concept floating = std::same_as<T, float> || std::same_as<T, half> || std::same_as<T, bfloat>;
template <class T>
concept scalar = std::is_integral_v<T> || floating<T>;
template <class V>
concept vector = requires { typename V::of_vector; };

template <class T, int N>
struct vec;

// some elements of a vector, as `v.xy`; they lie where the vector lies
template <class T, int N, int... I>
struct swizzle {
  typedef vec<T, sizeof...(I)> of_vector;
  T at[N];
  constexpr of_vector plain() const { return of_vector(at[I]...); }
  constexpr T operator[](int i) const { return plain()[i]; }
  swizzle& operator=(of_vector given) {
    int from = 0;
    ((at[I] = given[from++]), ...);
    return *this;
  }
};

template <class T, int N>
struct elements;
template <class T>
struct alignas(2 * sizeof(T)) elements<T, 2> {
  union {
    T at[2];
    struct { T x, y; };
    struct { T r, g; };
    swizzle<T, 2, 0, 1> xy;
    swizzle<T, 2, 1, 0> yx;
  };
};
template <class T>
struct alignas(4 * sizeof(T)) elements<T, 3> {
  union {
    T at[3];
    struct { T x, y, z; };
    struct { T r, g, b; };
    swizzle<T, 3, 0, 1> xy;
    swizzle<T, 3, 1, 2> yz;
    swizzle<T, 3, 0, 2> xz;
    swizzle<T, 3, 0, 1, 2> xyz;
  };
};
template <class T>
struct alignas(4 * sizeof(T)) elements<T, 4> {
  union {
    T at[4];
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    swizzle<T, 4, 0, 1> xy;
    swizzle<T, 4, 0, 1> lo;
    swizzle<T, 4, 2, 3> zw;
    swizzle<T, 4, 2, 3> hi;
    swizzle<T, 4, 1, 2> yz;
    swizzle<T, 4, 0, 2> xz;
    swizzle<T, 4, 1, 3> yw;
    swizzle<T, 4, 0, 2> even;
    swizzle<T, 4, 1, 3> odd;
    swizzle<T, 4, 0, 1, 2> xyz;
    swizzle<T, 4, 1, 2, 3> yzw;
    swizzle<T, 4, 0, 1, 2> rgb;
  };
};

template <class P>
constexpr int count_of() {
  if constexpr (vector<P>) return P::of_vector::count;
  else return 1;
}

template <class T, int N>
struct vec : elements<T, N> {
  typedef vec of_vector;
  typedef T element;
  static constexpr int count = N;
  vec() = default;
  template <scalar S>
  constexpr vec(S value) {
    for (T& each : this->at) each = T(value);
  }
  template <vector V>
    requires(V::of_vector::count == N)
  constexpr explicit(!std::same_as<typename V::of_vector, vec>) vec(const V& other) {
    for (int i = 0; i < N; ++i) this->at[i] = T(other.plain()[i]);
  }
  template <class... P>
    requires(sizeof...(P) > 1 && (count_of<P>() + ...) == N)
  constexpr vec(P... parts) {
    int to = 0;
    (put(to, parts), ...);
  }
  constexpr const vec& plain() const { return *this; }
  constexpr T& operator[](int i) { return this->at[i]; }
  constexpr const T& operator[](int i) const { return this->at[i]; }

 private:
  template <class P>
  constexpr void put(int& to, const P& part) {
    if constexpr (vector<P>) for (int i = 0; i < P::of_vector::count; ++i) this->at[to++] = T(part.plain()[i]);
    else this->at[to++] = T(part);
  }
};

template <class P>
constexpr auto element_of(const P& part, int i) {
  if constexpr (vector<P>) return part.plain()[i];
  else return part;
}

// a function of elements, applied to each element; scalars stand for vectors of equal elements
template <class F, class... P>
constexpr auto each(F function, const P&... parts) {
  constexpr int counts[] = {count_of<P>()...};
  constexpr int count = [](auto& all) { int most = 1; for (int n : all) most = n > most ? n : most; return most; }(counts);
  typedef decltype(function(element_of(parts, 0)...)) element;
  vec<element, count> result;
  for (int i = 0; i < count; ++i) result[i] = function(element_of(parts, i)...);
  return result;
}

// the type in which an operator computes: the vector's, also beside a scalar of another type
template <class A, class B>
constexpr auto computed_in() {
  if constexpr (vector<A> && vector<B>) {
    static_assert(std::same_as<typename A::of_vector, typename B::of_vector>, "vectors of different types");
    return typename A::of_vector::element();
  } else if constexpr (vector<A>) return typename A::of_vector::element();
  else return typename B::of_vector::element();
}

#define METAL_OPERATOR(OP)                                                                       \
  template <class A, class B>                                                                    \
    requires((vector<A> && (vector<B> || scalar<B>)) || (vector<B> && scalar<A>))                \
  constexpr auto operator OP(const A& a, const B& b) {                                           \
    typedef decltype(computed_in<A, B>()) T;                                                     \
    return each([](auto x, auto y) { return decltype(T(x) OP T(y))(T(x) OP T(y)); }, a, b);      \
  }
#define METAL_ARITHMETIC(OP)                                                                     \
  template <class A, class B>                                                                    \
    requires((vector<A> && (vector<B> || scalar<B>)) || (vector<B> && scalar<A>))                \
  constexpr auto operator OP(const A& a, const B& b) {                                           \
    typedef decltype(computed_in<A, B>()) T;                                                     \
    return each([](auto x, auto y) { return T(T(x) OP T(y)); }, a, b);                           \
  }                                                                                              \
  template <class T, int N, class B>                                                             \
    requires(vector<B> || scalar<B>)                                                             \
  constexpr vec<T, N>& operator OP##=(vec<T, N>& a, const B& b) { return a = a OP b; }           \
  template <class T, int N, int... I, class B>                                                   \
    requires(vector<B> || scalar<B>)                                                             \
  constexpr auto& operator OP##=(swizzle<T, N, I...>& a, const B& b) { return a = a OP b; }
METAL_ARITHMETIC(+)
METAL_ARITHMETIC(-)
METAL_ARITHMETIC(*)
METAL_ARITHMETIC(/)
METAL_ARITHMETIC(%)
METAL_ARITHMETIC(&)
METAL_ARITHMETIC(|)
METAL_ARITHMETIC(^)
METAL_ARITHMETIC(<<)
METAL_ARITHMETIC(>>)
METAL_OPERATOR(==)
METAL_OPERATOR(!=)
METAL_OPERATOR(<)
METAL_OPERATOR(<=)
METAL_OPERATOR(>)
METAL_OPERATOR(>=)
METAL_OPERATOR(&&)
METAL_OPERATOR(||)
template <vector V>
constexpr auto operator-(const V& v) { return each([](auto x) { return decltype(x)(-x); }, v); }
template <vector V>
constexpr auto operator!(const V& v) { return each([](auto x) { return !x; }, v); }
template <vector V>
constexpr auto operator~(const V& v) { return each([](auto x) { return decltype(x)(~x); }, v); }

}  // namespace metal_cpu

#define METAL_VECTORS(T)                  \
  typedef metal_cpu::vec<T, 2> T##2;      \
  typedef metal_cpu::vec<T, 3> T##3;      \
  typedef metal_cpu::vec<T, 4> T##4;
METAL_VECTORS(bool)
METAL_VECTORS(char)
METAL_VECTORS(uchar)
METAL_VECTORS(short)
METAL_VECTORS(ushort)
METAL_VECTORS(int)
METAL_VECTORS(uint)
METAL_VECTORS(long)
METAL_VECTORS(ulong)
METAL_VECTORS(half)
METAL_VECTORS(bfloat)
METAL_VECTORS(float)
