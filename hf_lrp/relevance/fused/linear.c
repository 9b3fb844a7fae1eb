/* Redistribution with the rule AlphaBeta(1, 0) in float32, fused: contributions are never stored.
 *
 * What hf_lrp/relevance/operations does in torch, for CPUs; docs/speed.md tells how. Plain C without headers of torch or
 * Python, compiled once per instruction set and called through ctypes (compiled.py). Nothing is allocated here, there is
 * no state and there are no threads: a call works on the tokens first, first + stride, ... so that callers can share
 * them out. Shapes are those of the torch code; lag as there, with a very large one for "from all steps".
 */
#include "tiles.h"

#define CACHED (128 * 1024)    /* elements of a block of weights, which stays in the second-level cache */
#define TOGETHER (256 * 1024)  /* elements of the results of tokens that take turns with a block */

/* total[j] = sum_i relu(w_ji x_i + shift_j) */
static void normalisers(const float *x, const float *w, const float *shift, long rows, long inputs, float *total) {
    for (long j = 0; j < rows; j++, w += inputs) {
        const floats shifts = fill(shift[j]);
        floats a = {0}, b = {0};
        float rest = 0;
        long i = 0;
        for (; i + WIDE <= inputs; i += WIDE) {
            a += relu(load(w + i) * load(x + i) + shifts);
            b += relu(load(w + i + LANES) * load(x + i + LANES) + shifts);
        }
        for (; i < inputs; i++) rest += positive(w[i] * x[i] + shift[j]);
        total[j] = add_lanes(a + b) + rest;
    }
}

/* share[t, j] = relevance[t, j] / total[j]. share: [steps, MOST_ROWS]; total is overwritten. */
static void divide(const float *relevance, float *total, long rows, long steps, long outputs, float *share) {
    for (long j = 0; j < rows; j++) total[j] = 1 / (total[j] > TINY ? total[j] : TINY);
    for (long t = 0; t < steps; t++, relevance += outputs, share += MOST_ROWS)
        for (long j = 0; j < rows; j++) share[j] = relevance[j] * total[j];
}

/* z[j] = relu(w_ji x_i + shift_j) for `width` inputs i, up to WIDE; zero beyond. z: [rows, WIDE] */
static void build(const float *x, const float *w, const float *shift, long rows, long inputs, long width, float *z) {
    if (width == WIDE) {
        const floats x0 = load(x), x1 = load(x + LANES);
        for (long j = 0; j < rows; j++, w += inputs, z += WIDE) {
            const floats shifts = fill(shift[j]);
            store(z, relu(load(w) * x0 + shifts));
            store(z + LANES, relu(load(w + LANES) * x1 + shifts));
        }
        return;
    }
    memset(z, 0, (size_t)(rows * WIDE) * sizeof(float));
    for (long j = 0; j < rows; j++, w += inputs, z += WIDE)
        for (long i = 0; i < width; i++) z[i] = positive(w[i] * x[i] + shift[j]);
}

/* A linear layer, or one with a rotation after it: cos, sin: [tokens, outputs]; partner: [outputs]; else all NULL. */
typedef struct {
    const float *weight, *shift, *cos, *sin;
    const int64_t *partner;
    long outputs, inputs;
} Map;

/* The rows j, j + 1, ... of the map of token n, if it is turned: w_j cos_j + w_partner(j) sin_j. */
static void turn(const Map *m, long n, long j, long rows, float *turned, float *shift) {
    const float *cos = m->cos + n * m->outputs, *sin = m->sin + n * m->outputs;
    for (long row = 0; row < rows; row++, j++, turned += m->inputs) {
        const long partner = (long)m->partner[j];
        const float *own = m->weight + j * m->inputs, *other = m->weight + partner * m->inputs;
        const float c = cos[j], s = sin[j];
        for (long i = 0; i < m->inputs; i++) turned[i] = own[i] * c + other[i] * s;
        shift[row] = m->shift[j] * c + m->shift[partner] * s;
    }
}

/* One token and some outputs; pointers at the first of them and at the first step that carries relevance. received has
 * the steps of WIDE inputs together: [inputs / WIDE, steps, WIDE], which is written without long leaps. */
static void linear_block(const float *x, const float *weight, const float *shift, const float *relevance, float *received,
                         float *memory, long rows, long steps, long outputs, long inputs) {
    float *total = memory, *z = total + MOST_ROWS, *share = z + MOST_ROWS * WIDE, *edge = share + MOST_ROWS * steps;
    normalisers(x, weight, shift, rows, inputs, total);
    divide(relevance, total, rows, steps, outputs, share);
    for (long i = 0; i < inputs; i += WIDE, received += steps * WIDE) {
        const long width = at_most(WIDE, inputs - i);
        build(x + i, weight + i, shift, rows, inputs, width, z);
        if (width == WIDE) {
            multiply_all(share, MOST_ROWS, 1, z, WIDE, received, WIDE, rows, steps);
            continue;
        }
        memset(edge, 0, (size_t)(steps * WIDE) * sizeof(float));
        multiply_all(share, MOST_ROWS, 1, z, WIDE, edge, WIDE, rows, steps);
        for (long t = 0; t < steps; t++)
            for (long k = 0; k < width; k++) received[t * width + k] += edge[t * WIDE + k];
    }
}

/* [inputs / WIDE, steps, WIDE] -> [steps, inputs]; memory: as much */
static void untile(float *received, float *memory, long steps, long inputs) {
    memcpy(memory, received, (size_t)(steps * inputs) * sizeof(float));
    for (long i = 0; i < inputs; i += WIDE) {
        const long width = at_most(WIDE, inputs - i);
        for (long t = 0; t < steps; t++, memory += width)
            memcpy(received + t * inputs + i, memory, (size_t)width * sizeof(float));
    }
}

/* Outputs that are done together. */
static long block_rows(long inputs) { return at_least(1, at_most(MOST_ROWS, CACHED / inputs)); }

/* Floats of memory that linear() works in. */
long linear_memory(long steps, long inputs) {
    const long turned = block_rows(inputs) * inputs + MOST_ROWS;
    return MOST_ROWS * (1 + WIDE + steps) + WIDE * steps + at_least(turned, steps * inputs);
}

/* shift: [outputs], what each input has of the bias. Blocks of weights are outside, some tokens inside, so that weights
 * are read from the cache; as many tokens as have results that stay there too. */
void linear(const float *x, const float *weight, const float *shift, const float *cos, const float *sin,
            const int64_t *partner, const float *relevance, float *received, float *memory, long first, long stride,
            long tokens, long steps, long outputs, long inputs, long lag) {
    const Map m = {weight, shift, cos, sin, partner, outputs, inputs};
    const long most = block_rows(inputs), group = stride * at_least(1, TOGETHER / (steps * inputs));
    float *more = memory + MOST_ROWS * (1 + WIDE + steps) + WIDE * steps, *turned_shift = more + most * inputs;
    for (long begin = first; begin < tokens; begin += group) {
        const long end = at_most(tokens, begin + group);
        for (long n = begin; n < end; n += stride)
            memset(received + n * steps * inputs, 0, (size_t)(steps * inputs) * sizeof(float));
        for (long j = 0; j < outputs; j += most)
            for (long n = begin; n < end; n += stride) {
                const long start = at_most(steps, at_least(0, n - lag)), row = n * steps + start;
                const long rows = at_most(most, outputs - j);
                if (start == steps) continue;
                if (partner) turn(&m, n, j, rows, more, turned_shift);
                linear_block(x + n * inputs, partner ? more : weight + j * inputs, partner ? turned_shift : shift + j,
                             relevance + row * outputs + j, received + row * inputs, memory, rows, steps - start, outputs,
                             inputs);
            }
        for (long n = begin; n < end; n += stride) {
            const long start = at_most(steps, at_least(0, n - lag));
            untile(received + (n * steps + start) * inputs, more, steps - start, inputs);
            for (long row = n * steps + start; row < (n + 1) * steps; row++)
                conserve(received + row * inputs, inputs, sum(relevance + row * outputs, outputs));
        }
    }
}

/* Which arguments the functions take; compiled.py uses no other. */
long interface(void) { return 3; }
