/* Two linear layers of the same input whose outputs are multiplied, as in gated feed-forward blocks; see linear.c.
 *
 * Each of the two has half of the product's relevance. So one product with what both contribute is enough, which costs
 * less than one product for each:
 *
 *     R_ti = sum_j R_tj (z_ij / 2 N_j + z'_ij / 2 N'_j)
 */
#include "tiles.h"

#define CACHED (128 * 1024)   /* elements of a block of weights, those of both layers */
#define TOGETHER (256 * 1024) /* elements of the results of tokens that take turns with a block */

/* Of one of the two layers, the rows of a block: weights, bias by input, and 1 over twice the normalisers. */
typedef struct {
    const float *weight, *shift;
    float *half;
} Rows;

/* Fills in r->half; returns whether an output has no positive input, though it has relevance at some step. */
static int normalise(const Rows *r, const float *x, const float *relevance, long rows, long steps, long outputs,
                     long inputs) {
    int lost = 0;
    for (long j = 0; j < rows; j++) {
        const float *w = r->weight + j * inputs;
        const floats shifts = fill(r->shift[j]);
        floats a = {0}, b = {0};
        float rest = 0;
        long i = 0;
        for (; i + WIDE <= inputs; i += WIDE) {
            a += relu(load(w + i) * load(x + i) + shifts);
            b += relu(load(w + i + LANES) * load(x + i + LANES) + shifts);
        }
        for (; i < inputs; i++) rest += positive(w[i] * x[i] + r->shift[j]);
        const float total = add_lanes(a + b) + rest;
        r->half[j] = 0.5f / (total > TINY ? total : TINY);
        for (long t = 0; total <= TINY && t < steps; t++) lost |= relevance[t * outputs + j] != 0;
    }
    return lost;
}

/* What both layers contribute, each over twice its normaliser, for `width` inputs, up to WIDE; zero beyond.
 * z: [rows, WIDE] */
static void build(const float *x, const Rows *r, const Rows *s, long i, long rows, long inputs, long width, float *z) {
    const float *v = r->weight + i, *w = s->weight + i;
    if (width == WIDE) {
        const floats x0 = load(x + i), x1 = load(x + i + LANES);
        for (long j = 0; j < rows; j++, v += inputs, w += inputs, z += WIDE) {
            const floats a = fill(r->shift[j]), b = fill(s->shift[j]), c = fill(r->half[j]), d = fill(s->half[j]);
            store(z, relu(load(v) * x0 + a) * c + relu(load(w) * x0 + b) * d);
            store(z + LANES, relu(load(v + LANES) * x1 + a) * c + relu(load(w + LANES) * x1 + b) * d);
        }
        return;
    }
    memset(z, 0, (size_t)(rows * WIDE) * sizeof(float));
    for (long j = 0; j < rows; j++, v += inputs, w += inputs, z += WIDE)
        for (long k = 0; k < width; k++)
            z[k] = positive(v[k] * x[i + k] + r->shift[j]) * r->half[j] +
                   positive(w[k] * x[i + k] + s->shift[j]) * s->half[j];
}

/* Rows of a block, whose weights stay in the cache; inputs in whole tiles. */
static long block_rows(long inputs) { return at_least(1, at_most(MOST_ROWS, CACHED / 2 / inputs)); }
static long tiles(long inputs) { return (inputs + WIDE - 1) / WIDE; }
static long together(long tokens, long steps, long inputs) {
    return at_most(tokens, at_least(1, TOGETHER / (steps * tiles(inputs) * WIDE)));
}

/* Floats of memory that gated() works in, for so many tokens. */
long gated_memory(long tokens, long steps, long inputs) {
    return MOST_ROWS * (2 + WIDE + steps) + together(tokens, steps, inputs) * steps * tiles(inputs) * WIDE;
}

/* One token and the rows of a block. relevance: from the first of them and the first step that carries any on;
 * tile: what all inputs receive, [inputs / WIDE, steps, WIDE]. Returns what normalise() does. */
static int block(const float *x, const Rows *r, const Rows *s, const float *relevance, float *tile, float *z, float *share,
                 long rows, long steps, long outputs, long inputs) {
    const int lost = normalise(r, x, relevance, rows, steps, outputs, inputs) |
                     normalise(s, x, relevance, rows, steps, outputs, inputs);
    for (long t = 0; t < steps; t++)
        memcpy(share + t * MOST_ROWS, relevance + t * outputs, (size_t)rows * sizeof(float));
    for (long i = 0; i < inputs; i += WIDE, tile += steps * WIDE) {
        build(x, r, s, i, rows, inputs, at_most(WIDE, inputs - i), z);
        multiply_all(share, MOST_ROWS, 1, z, WIDE, tile, WIDE, rows, steps);
    }
    return lost;
}

/* weight, gate: [outputs, inputs]; shift, gate_shift: [outputs], what each input has of the biases.
 * lost: [tokens], set where an output of one of the layers has nowhere to send what it has, so that the totals of the
 * two would have to be kept separately: those tokens are not done. */
void gated(const float *x, const float *weight, const float *shift, const float *gate, const float *gate_shift,
           const float *relevance, float *received, uint8_t *lost, float *memory, long first, long stride, long tokens,
           long steps, long outputs, long inputs, long lag) {
    const long most = block_rows(inputs), size = steps * tiles(inputs) * WIDE;
    const long count = together((tokens - first + stride - 1) / stride, steps, inputs);
    float *half = memory, *z = half + 2 * MOST_ROWS, *share = z + MOST_ROWS * WIDE, *sums = share + MOST_ROWS * steps;
    for (long begin = first; begin < tokens; begin += count * stride) {
        const long end = at_most(tokens, begin + count * stride);
        memset(sums, 0, (size_t)(count * size) * sizeof(float));
        for (long j = 0; j < outputs; j += most) {
            const long rows = at_most(most, outputs - j);
            const Rows r = {weight + j * inputs, shift + j, half};
            const Rows s = {gate + j * inputs, gate_shift + j, half + MOST_ROWS};
            float *tile = sums;
            for (long n = begin; n < end; n += stride, tile += size) {
                const long start = at_most(steps, at_least(0, n - lag));
                if (start < steps)
                    lost[n] |= block(x + n * inputs, &r, &s, relevance + (n * steps + start) * outputs + j, tile, z,
                                     share, rows, steps - start, outputs, inputs);
            }
        }
        const float *tile = sums;
        for (long n = begin; n < end; n += stride, tile += size) {
            const long start = at_most(steps, at_least(0, n - lag)), live = steps - start;
            memset(received + n * steps * inputs, 0, (size_t)(start * inputs) * sizeof(float));
            for (long t = 0; t < live; t++) {
                float *row = received + (n * steps + start + t) * inputs;
                for (long i = 0; i < inputs; i += WIDE)
                    memcpy(row + i, tile + i * live + t * WIDE, (size_t)at_most(WIDE, inputs - i) * sizeof(float));
                conserve(row, inputs, sum(relevance + (n * steps + start + t) * outputs, outputs));
            }
        }
    }
}
