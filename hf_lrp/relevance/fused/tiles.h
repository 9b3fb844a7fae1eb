/* Vectors, sums, and the product that everything else is built from: what the C files of the compiled part share.
 *
 * Compiled once per instruction set; the vector types are those of GCC and Clang.
 */
#ifndef HF_LRP_TILES_H
#define HF_LRP_TILES_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define BYTES 64       /* of a vector */
#define MOST_STEPS 12  /* that are multiplied together, in registers */
#elif defined(__AVX2__)
#define BYTES 32
#define MOST_STEPS 6
#else
#define BYTES 16
#define MOST_STEPS 4
#endif
#define LANES (BYTES / 4)
#define WIDE (2 * LANES)      /* inputs of a tile */
#define TINY 1.0842021724855044e-19f /* as in rules.py: sums of contributions below this are no sums */
#define MOST_ROWS 128         /* that are summed over at a time */

#define INLINE static inline __attribute__((always_inline))

typedef float floats __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(BYTES)));

INLINE long at_least(long x, long least) { return x > least ? x : least; }
INLINE long at_most(long x, long most) { return x < most ? x : most; }
INLINE float positive(float z) { return z > 0 ? z : 0; }

INLINE floats load(const float *p) { return *(const floats *)p; }
INLINE void store(float *p, floats v) { *(floats *)p = v; }
INLINE floats fill(float value) { return value - (floats){0}; } /* minus, which compilers leave out */
#if defined(__AVX512F__)
INLINE floats relu(floats z) { return _mm512_max_ps(z, _mm512_setzero_ps()); }
#elif defined(__AVX2__)
INLINE floats relu(floats z) { return _mm256_max_ps(z, _mm256_setzero_ps()); }
#else
INLINE floats relu(floats z) { return (floats)((ints)z & (z > 0)); }
#endif

INLINE float add_lanes(floats v) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += v[lane];
    return sum;
}

static inline float sum(const float *p, long n) {
    floats a = {0}, b = {0};
    float rest = 0;
    long i = 0;
    for (; i + WIDE <= n; i += WIDE) a += load(p + i), b += load(p + i + LANES);
    for (; i < n; i++) rest += p[i];
    return add_lanes(a + b) + rest;
}

/* Rescale n numbers so that they sum to total; equal parts if they are all zero. */
static inline void conserve(float *p, long n, float total) {
    float scale = total / sum(p, n), rise = 0;
    if (!isfinite(scale)) scale = 0, rise = total / (float)n;
    for (long i = 0; i < n; i++) p[i] = p[i] * scale + rise;
}

/* out[t] += sum_j share[t, j] z[j], for `count` t, which are held in registers, and WIDE columns of z and out.
 *
 * share[t, j] stands at t * pitch + j * next, row j of z at j * wide, row t of out at t * out_pitch. pitch and count are
 * constants wherever this is used.
 */
INLINE void multiply(const float *share, const long pitch, long next, const float *z, long wide, float *out,
                     long out_pitch, long rows, const int count) {
    floats left[MOST_STEPS], right[MOST_STEPS];
#pragma GCC unroll 12
    for (int t = 0; t < count; t++) left[t] = load(out + t * out_pitch), right[t] = load(out + t * out_pitch + LANES);
    for (long j = 0; j < rows; j++, z += wide, share += next) {
        const floats z0 = load(z), z1 = load(z + LANES);
#pragma GCC unroll 12
        for (int t = 0; t < count; t++) {
            const floats s = fill(share[t * pitch]);
            left[t] += s * z0;
            right[t] += s * z1;
        }
    }
#pragma GCC unroll 12
    for (int t = 0; t < count; t++) store(out + t * out_pitch, left[t]), store(out + t * out_pitch + LANES, right[t]);
}

/* The same for any number of t, in tiles of about equal height. */
INLINE void multiply_all(const float *share, const long pitch, long next, const float *z, long wide, float *out,
                         long out_pitch, long rows, long steps) {
    for (long tiles = (steps + MOST_STEPS - 1) / MOST_STEPS; tiles > 0; tiles--) {
        const long count = (steps + tiles - 1) / tiles;
#define CASE(n) \
    case n: multiply(share, pitch, next, z, wide, out, out_pitch, rows, n); break;
        switch (count) {
            CASE(1) CASE(2) CASE(3) CASE(4)
#if MOST_STEPS > 4
            CASE(5) CASE(6)
#endif
#if MOST_STEPS > 6
            CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12)
#endif
        }
#undef CASE
        steps -= count, share += count * pitch, out += count * out_pitch;
    }
}

#endif
