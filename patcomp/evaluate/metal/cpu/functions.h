// The functions and constants of <metal_stdlib> for numbers.
#pragma once
#include "types.h"

#undef INFINITY
#define INFINITY __builtin_inff()
#ifndef MAXFLOAT
#define MAXFLOAT FLT_MAX
#endif
#define HALF_MAX half(65504.0f)
#define HALF_MIN half(6.103515625e-05f)
#define HALF_EPSILON half(9.765625e-04f)
#define MAXHALF HALF_MAX
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

namespace metal_cpu {
// the float type of two operands: an integer takes the other one's; two different float types are ambiguous in Metal
template <class A, class B>
struct float_of;
template <floating A>
struct float_of<A, A> { typedef A type; };
template <floating A, std::integral B>
struct float_of<A, B> { typedef A type; };
template <std::integral A, floating B>
struct float_of<A, B> { typedef B type; };
template <class A, class B>
concept ambiguous = floating<A> && floating<B> && !std::same_as<A, B>;
}  // namespace metal_cpu

namespace metal {
namespace cpu = metal_cpu;  // its names stay out of the namespace that kernels use

template <class T, size_t N>
struct array {
  T at[N];
  constexpr T& operator[](size_t i) { return at[i]; }
  constexpr const T& operator[](size_t i) const { return at[i]; }
  static constexpr size_t size() { return N; }
};

template <class T>
struct numeric_limits : std::numeric_limits<T> {};
template <>
struct numeric_limits<half> {
  static constexpr half max() { return half(65504.0f); }
  static constexpr half lowest() { return half(-65504.0f); }
  static constexpr half min() { return half(6.103515625e-05f); }
  static constexpr half epsilon() { return half(9.765625e-04f); }
  static constexpr half infinity() { return half(__builtin_inff()); }
  static constexpr half quiet_NaN() { return half(__builtin_nanf("")); }
};
template <>
struct numeric_limits<bfloat> {
  static constexpr bfloat max() { return bfloat(3.38953139e38f); }
  static constexpr bfloat lowest() { return bfloat(-3.38953139e38f); }
  static constexpr bfloat min() { return bfloat(FLT_MIN); }
  static constexpr bfloat infinity() { return bfloat(__builtin_inff()); }
  static constexpr bfloat quiet_NaN() { return bfloat(__builtin_nanf("")); }
};

#define METAL_UNARY(NAME, RESULT)                                                             \
  template <cpu::floating T>                                                                       \
  constexpr T NAME(T value) { float x = value; return T(RESULT); }                            \
  template <cpu::vector V>                                                                         \
  constexpr auto NAME(const V& v) { return cpu::each([](auto x) { return NAME(x); }, v); }
#define METAL_BINARY(NAME, RESULT)                                                            \
  template <class A, class B, class T = typename cpu::float_of<A, B>::type>                        \
  constexpr T NAME(A a, B b) { float x = a, y = b; return T(RESULT); }                        \
  template <class A, class B>                                                                 \
    requires cpu::ambiguous<A, B>                                                                  \
  void NAME(A, B) = delete;                                                                   \
  template <class A, class B>                                                                 \
    requires(cpu::vector<A> || cpu::vector<B>)                                                          \
  constexpr auto NAME(const A& a, const B& b) {                                               \
    typedef decltype(cpu::computed_in<A, B>()) T;                                                  \
    return cpu::each([](auto x, auto y) { return NAME(T(x), T(y)); }, a, b);                       \
  }
#define METAL_TEST(NAME, RESULT)                                                              \
  template <cpu::floating T>                                                                       \
  constexpr bool NAME(T value) { float x = value; return RESULT; }                            \
  template <cpu::vector V>                                                                         \
  constexpr auto NAME(const V& v) { return cpu::each([](auto x) { return NAME(x); }, v); }

METAL_UNARY(acos, __builtin_acosf(x))
METAL_UNARY(acosh, __builtin_acoshf(x))
METAL_UNARY(asin, __builtin_asinf(x))
METAL_UNARY(asinh, __builtin_asinhf(x))
METAL_UNARY(atan, __builtin_atanf(x))
METAL_UNARY(atanh, __builtin_atanhf(x))
METAL_UNARY(ceil, __builtin_ceilf(x))
METAL_UNARY(cos, __builtin_cosf(x))
METAL_UNARY(cosh, __builtin_coshf(x))
METAL_UNARY(cospi, __builtin_cosf(M_PI_F * x))
METAL_UNARY(exp, __builtin_expf(x))
METAL_UNARY(exp2, __builtin_exp2f(x))
METAL_UNARY(exp10, __builtin_powf(10.0f, x))
METAL_UNARY(fabs, __builtin_fabsf(x))
METAL_UNARY(floor, __builtin_floorf(x))
METAL_UNARY(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
METAL_UNARY(log, __builtin_logf(x))
METAL_UNARY(log2, __builtin_log2f(x))
METAL_UNARY(log10, __builtin_log10f(x))
METAL_UNARY(rint, __builtin_nearbyintf(x))
METAL_UNARY(round, __builtin_roundf(x))
METAL_UNARY(rsqrt, 1.0f / __builtin_sqrtf(x))
METAL_UNARY(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))
METAL_UNARY(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f)
METAL_UNARY(sin, __builtin_sinf(x))
METAL_UNARY(sinh, __builtin_sinhf(x))
METAL_UNARY(sinpi, __builtin_sinf(M_PI_F * x))
METAL_UNARY(sqrt, __builtin_sqrtf(x))
METAL_UNARY(tan, __builtin_tanf(x))
METAL_UNARY(tanh, __builtin_tanhf(x))
METAL_UNARY(trunc, __builtin_truncf(x))
METAL_BINARY(atan2, __builtin_atan2f(x, y))
METAL_BINARY(copysign, __builtin_copysignf(x, y))
METAL_BINARY(fdim, __builtin_fdimf(x, y))
METAL_BINARY(fmax, __builtin_fmaxf(x, y))
METAL_BINARY(fmin, __builtin_fminf(x, y))
METAL_BINARY(fmod, __builtin_fmodf(x, y))
METAL_BINARY(pow, __builtin_powf(x, y))
METAL_BINARY(powr, __builtin_powf(x, y))
METAL_BINARY(step, y < x ? 0.0f : 1.0f)
METAL_TEST(isnan, x != x)
METAL_TEST(isinf, __builtin_isinf(x))
METAL_TEST(isfinite, __builtin_isfinite(x))
METAL_TEST(isnormal, __builtin_isnormal(x))
METAL_TEST(signbit, __builtin_signbit(x))

// functions of operands of one type, as Metal has them: `max(x, 0)` with a float x is ambiguous
#define METAL_SAME_TYPES(NAME, OF_FLOATS, OF_OTHERS)                                          \
  template <cpu::scalar T>                                                                         \
  constexpr T NAME(T a, T b) {                                                                \
    if constexpr (cpu::floating<T>) return T(OF_FLOATS(float(a), float(b)));                       \
    else return OF_OTHERS;                                                                    \
  }                                                                                           \
  template <class A, class B>                                                                 \
    requires(cpu::vector<A> || cpu::vector<B>)                                                          \
  constexpr auto NAME(const A& a, const B& b) {                                               \
    typedef decltype(cpu::computed_in<A, B>()) T;                                                  \
    return cpu::each([](auto x, auto y) { return NAME(T(x), T(y)); }, a, b);                       \
  }
METAL_SAME_TYPES(max, __builtin_fmaxf, (a < b ? b : a))
METAL_SAME_TYPES(min, __builtin_fminf, (b < a ? b : a))
template <cpu::scalar T>
constexpr T max3(T a, T b, T c) { return max(max(a, b), c); }
template <cpu::scalar T>
constexpr T min3(T a, T b, T c) { return min(min(a, b), c); }
template <cpu::scalar T>
constexpr T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <cpu::vector V, class L, class H>
constexpr auto clamp(const V& x, const L& low, const H& high) { return min(max(x, low), high); }
template <cpu::scalar T>
constexpr T abs(T x) { return x < T(0) ? T(-x) : x == T(0) ? T(0) : x; }
template <cpu::vector V>
constexpr auto abs(const V& v) { return cpu::each([](auto x) { return abs(x); }, v); }
template <std::integral T>
constexpr T absdiff(T a, T b) { return a < b ? T(b - a) : T(a - b); }

template <cpu::floating T>
constexpr T fma(T a, T b, T c) { return T(__builtin_fmaf(float(a), float(b), float(c))); }
template <cpu::vector V>
constexpr auto fma(const V& a, const V& b, const V& c) {
  return cpu::each([](auto x, auto y, auto z) { return fma(x, y, z); }, a, b, c);
}
template <cpu::floating T>
constexpr T mix(T a, T b, T share) { return T(a + (b - a) * share); }
template <cpu::vector V, class S>
constexpr auto mix(const V& a, const V& b, const S& share) { return a + (b - a) * share; }
template <cpu::floating T>
constexpr T smoothstep(T low, T high, T x) {
  T t = saturate(T((x - low) / (high - low)));
  return T(t * t * (3 - 2 * t));
}
template <cpu::floating T>
constexpr T ldexp(T x, int power) { return T(__builtin_ldexpf(float(x), power)); }
template <cpu::floating T>
T sincos(T x, T& cosine) { cosine = cos(x); return sin(x); }
template <class T>
constexpr T select(T a, T b, bool second) { return second ? b : a; }
template <cpu::vector V, cpu::vector C>
constexpr auto select(const V& a, const V& b, const C& second) {
  return cpu::each([](auto x, auto y, auto c) { return c ? y : x; }, a, b, second);
}
template <cpu::vector V>
constexpr bool any(const V& v) {
  bool found = false;
  for (int i = 0; i < V::of_vector::count; ++i) found |= bool(v.plain()[i]);
  return found;
}
template <cpu::vector V>
constexpr bool all(const V& v) { return !any(!v); }

template <cpu::vector A, cpu::vector B>
constexpr auto dot(const A& a, const B& b) {
  auto product = a * b;
  auto sum = product[0];
  for (int i = 1; i < product.count; ++i) sum += product[i];
  return sum;
}
template <cpu::vector V>
constexpr auto length_squared(const V& v) { return dot(v, v); }
template <cpu::vector V>
constexpr auto length(const V& v) { return sqrt(dot(v, v)); }
template <cpu::vector A, cpu::vector B>
constexpr auto distance(const A& a, const B& b) { return length(a - b); }
template <cpu::vector V>
constexpr auto normalize(const V& v) { return v * rsqrt(dot(v, v)); }
template <cpu::vector A, cpu::vector B>
constexpr auto cross(const A& first, const B& second) {
  auto a = first.plain(), b = second.plain();
  return decltype(a)(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}

template <std::integral T>
constexpr T popcount(T x) { return T(std::popcount(std::make_unsigned_t<T>(x))); }
template <std::integral T>
constexpr T clz(T x) { return T(std::countl_zero(std::make_unsigned_t<T>(x))); }
template <std::integral T>
constexpr T ctz(T x) { return T(std::countr_zero(std::make_unsigned_t<T>(x))); }
template <std::integral T>
constexpr T rotate(T x, T by) { return T(std::rotl(std::make_unsigned_t<T>(x), int(by))); }

namespace fast { using namespace metal; }
namespace precise { using namespace metal; }
}  // namespace metal

template <class To, class From>
constexpr To as_type(From value) {
  static_assert(sizeof(To) == sizeof(From), "as_type needs types of equal size");
  return std::bit_cast<To>(value);
}
namespace metal {
using std::conditional_t;
using std::enable_if_t;
using std::is_floating_point_v;
using std::is_integral_v;
using std::is_same;
using std::is_same_v;
}  // namespace metal
