/* Redistribution through sums of two tensors; see linear.c. */
#include "tiles.h"

/* memory: [2, d] */
void residual(const float *x, const float *update, const float *relevance, float *to_x, float *to_update, float *memory,
              long first, long stride, long tokens, long steps, long d) {
    float *of_x = memory, *of_update = memory + d;
    for (long n = first; n < tokens; n += stride) {
        for (long i = 0; i < d; i++) {
            const float p = positive(x[n * d + i]), q = positive(update[n * d + i]);
            const float total = p + q > TINY ? p + q : TINY;
            of_x[i] = p / total, of_update[i] = q / total;
        }
        for (long row = n * steps; row < (n + 1) * steps; row++) {
            const float *r = relevance + row * d;
            float *a = to_x + row * d, *b = to_update + row * d;
            for (long i = 0; i < d; i++) a[i] = r[i] * of_x[i], b[i] = r[i] * of_update[i];
            const float total = sum(r, d);
            float scale = total / (sum(a, d) + sum(b, d)), rise = 0;
            if (!isfinite(scale)) scale = 0, rise = total / (float)(2 * d);
            for (long i = 0; i < d; i++) a[i] = a[i] * scale + rise, b[i] = b[i] * scale + rise;
        }
    }
}
