/* Redistribution with the rule AlphaBeta(1, 0) in float32, fused: contributions are never stored.
 *
 * What hf_lrp/relevance/operations does in torch, for CPUs; docs/speed.md tells how. Plain C without headers of torch or
 * Python, compiled once per instruction set and called through ctypes (compiled.py). Nothing is allocated here, there is
 * no state and there are no threads: a call works on the tokens first, first + stride, ... so that callers can share
 * them out. Shapes are those of the torch code; lag as there, with a very large one for "from all steps".
 */
#include "tiles.h"

#define CACHED (128 * 1024)    /* elements of a block of weights, which stays in the second-level cache */
#define MOST_LIVING 256        /* outputs of a block */
#define TOGETHER (256 * 1024)  /* elements of the results of tokens that take turns with a block */

/* Rows of a block of weights, of the outputs that carry relevance: row[0], row[1], ...; NULL: all, one after the other. */
typedef const int32_t *Living;

INLINE const float *row_of(const float *w, Living row, long j, long inputs) { return w + (row ? row[j] : j) * inputs; }

/* Those of `rows` outputs that have relevance at some of the steps; returns their number. */
static long look(const float *relevance, long rows, long steps, long outputs, int32_t *row) {
    long count = 0, j = 0;
    for (; j + LANES <= rows; j += LANES) {
        ints bits = {0};
        for (long t = 0; t < steps; t++) bits |= (ints)load(relevance + t * outputs + j);
        bits <<= 1; /* without signs: -0 is 0 */
        for (int lane = 0; lane < LANES; lane++) row[count] = (int32_t)j + lane, count += bits[lane] != 0;
    }
    for (; j < rows; j++) {
        int any = 0;
        for (long t = 0; t < steps; t++) any |= relevance[t * outputs + j] != 0;
        row[count] = (int32_t)j, count += any;
    }
    return count;
}

/* The same; where all have some, the first step usually says so. The others receive and send nothing. */
static long find_living(const float *relevance, long rows, long steps, long outputs, int32_t *row) {
    const long count = look(relevance, rows, 1, outputs, row);
    return count == rows ? count : look(relevance, rows, steps, outputs, row);
}

/* inverse[j] = 1 / sum_i relu(w_ji x_i + shift_j) */
INLINE void invert(const float *x, const float *w, const float *shift, Living row, long rows, long inputs,
                   float *inverse) {
    for (long j = 0; j < rows; j++) {
        const float *v = row_of(w, row, j, inputs);
        const float s = shift[row ? row[j] : j];
        const floats shifts = fill(s);
        floats a = {0}, b = {0};
        float rest = 0;
        long i = 0;
        for (; i + WIDE <= inputs; i += WIDE) {
            a += relu(load(v + i) * load(x + i) + shifts);
            b += relu(load(v + i + LANES) * load(x + i + LANES) + shifts);
        }
        for (; i < inputs; i++) rest += positive(v[i] * x[i] + s);
        const float total = add_lanes(a + b) + rest;
        inverse[j] = 1 / (total > TINY ? total : TINY);
    }
}

/* share[t, j] = relevance[t, row[j]] inverse[j]. share: [steps, MOST_ROWS] */
INLINE void divide(const float *relevance, const float *inverse, Living row, long rows, long steps, long outputs,
                   float *share) {
    for (long t = 0; t < steps; t++, relevance += outputs, share += MOST_ROWS)
        for (long j = 0; j < rows; j++) share[j] = relevance[row ? row[j] : j] * inverse[j];
}

/* z[j] = relu(w_ji x_i + shift_j) for `width` inputs i, up to WIDE; zero beyond. z: [rows, WIDE] */
INLINE void build(const float *x, const float *w, const float *shift, Living row, long rows, long inputs, long width,
                  float *z) {
    if (width == WIDE) {
        const floats x0 = load(x), x1 = load(x + LANES);
        for (long j = 0; j < rows; j++, z += WIDE) {
            const float *v = row_of(w, row, j, inputs);
            const floats shifts = fill(shift[row ? row[j] : j]);
            store(z, relu(load(v) * x0 + shifts));
            store(z + LANES, relu(load(v + LANES) * x1 + shifts));
        }
        return;
    }
    memset(z, 0, (size_t)(rows * WIDE) * sizeof(float));
    for (long j = 0; j < rows; j++, z += WIDE) {
        const float *v = row_of(w, row, j, inputs);
        for (long i = 0; i < width; i++) z[i] = positive(v[i] * x[i] + shift[row ? row[j] : j]);
    }
}

/* A linear layer, or one with a rotation after it: cos, sin: [tokens, outputs]; partner: [outputs]; else all NULL. */
typedef struct {
    const float *weight, *shift, *cos, *sin;
    const int64_t *partner;
    long outputs, inputs;
} Map;

/* Rows of the map of token n, if it is turned: w_j cos_j + w_partner(j) sin_j, for the outputs begin + row[0], ... */
static void turn(const Map *m, long n, long begin, Living row, long rows, float *turned, float *shift) {
    const float *cos = m->cos + n * m->outputs, *sin = m->sin + n * m->outputs;
    for (long k = 0; k < rows; k++, turned += m->inputs) {
        const long j = begin + row[k], partner = (long)m->partner[j];
        const float *own = m->weight + j * m->inputs, *other = m->weight + partner * m->inputs;
        const float c = cos[j], s = sin[j];
        for (long i = 0; i < m->inputs; i++) turned[i] = own[i] * c + other[i] * s;
        shift[k] = m->shift[j] * c + m->shift[partner] * s;
    }
}

/* What a block of one token works in. z: [MOST_ROWS, WIDE], share: [MOST_ROWS, steps], edge: [steps, WIDE] */
typedef struct {
    float *inverse, *z, *share, *edge;
} Room;

/* Up to MOST_ROWS outputs of one token. received has the steps of WIDE inputs together: [inputs / WIDE, steps, WIDE],
 * which is written without long leaps. */
INLINE void send(const float *x, const float *weight, const float *shift, Living row, float *received, const Room *m,
                 long rows, long steps, long inputs) {
    for (long i = 0; i < inputs; i += WIDE, received += steps * WIDE) {
        const long width = at_most(WIDE, inputs - i);
        build(x + i, weight + i, shift, row, rows, inputs, width, m->z);
        if (width == WIDE) {
            multiply_all(m->share, MOST_ROWS, 1, m->z, WIDE, received, WIDE, rows, steps);
            continue;
        }
        memset(m->edge, 0, (size_t)(steps * WIDE) * sizeof(float));
        multiply_all(m->share, MOST_ROWS, 1, m->z, WIDE, m->edge, WIDE, rows, steps);
        for (long t = 0; t < steps; t++)
            for (long k = 0; k < width; k++) received[t * width + k] += m->edge[t * WIDE + k];
    }
}

/* The same with what comes before; pointers at the first of the outputs and at the first step that carries relevance. */
static void send_all(const float *x, const float *weight, const float *shift, const float *relevance, float *received,
                     const Room *m, long rows, long steps, long outputs, long inputs) {
    invert(x, weight, shift, NULL, rows, inputs, m->inverse);
    divide(relevance, m->inverse, NULL, rows, steps, outputs, m->share);
    send(x, weight, shift, NULL, received, m, rows, steps, inputs);
}

static void send_some(const float *x, const float *weight, const float *shift, Living row, const float *relevance,
                      float *received, const Room *m, long rows, long steps, long outputs, long inputs) {
    invert(x, weight, shift, row, rows, inputs, m->inverse);
    divide(relevance, m->inverse, row, rows, steps, outputs, m->share);
    send(x, weight, shift, row, received, m, rows, steps, inputs);
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

/* Outputs of a block. */
static long block_rows(long inputs) { return at_least(1, at_most(MOST_LIVING, CACHED / inputs)); }

/* Floats of memory that linear() works in. */
long linear_memory(long steps, long inputs) {
    const long turned = MOST_ROWS * (inputs + 1);
    return MOST_ROWS * (1 + WIDE + steps) + WIDE * steps + at_least(turned, steps * inputs);
}

/* A block of the outputs of token n: j, j + 1, ... */
static void block(const Map *m, const float *x, long n, long j, const float *relevance, float *received, const Room *room,
                  float *turned, long rows, long steps) {
    int32_t row[MOST_LIVING];
    const long living = find_living(relevance, rows, steps, m->outputs, row);
    for (long k = 0; k < living; k += MOST_ROWS) {
        const long count = at_most(MOST_ROWS, living - k);
        const float *weight = m->weight + j * m->inputs, *shift = m->shift + j;
        if (m->partner) {
            float *turned_shift = turned + MOST_ROWS * m->inputs;
            turn(m, n, j, row + k, count, turned, turned_shift);
            invert(x, turned, turned_shift, NULL, count, m->inputs, room->inverse);
            divide(relevance, room->inverse, row + k, count, steps, m->outputs, room->share);
            send(x, turned, turned_shift, NULL, received, room, count, steps, m->inputs);
        } else if (row[k + count - 1] - row[k] == count - 1) {
            send_all(x, weight + row[k] * m->inputs, shift + row[k], relevance + row[k], received, room, count, steps,
                     m->outputs, m->inputs);
        } else {
            send_some(x, weight, shift, row + k, relevance, received, room, count, steps, m->outputs, m->inputs);
        }
    }
}

/* shift: [outputs], what each input has of the bias. Blocks of weights are outside, some tokens inside, so that weights
 * are read from the cache; as many tokens as have results that stay there too. Outputs without relevance are left out,
 * such as those that a residual sends nothing to: half of all. */
void linear(const float *x, const float *weight, const float *shift, const float *cos, const float *sin,
            const int64_t *partner, const float *relevance, float *received, float *memory, long first, long stride,
            long tokens, long steps, long outputs, long inputs, long lag) {
    const Map m = {weight, shift, cos, sin, partner, outputs, inputs};
    const Room room = {memory, memory + MOST_ROWS, memory + MOST_ROWS * (1 + WIDE),
                       memory + MOST_ROWS * (1 + WIDE + steps)};
    const long most = block_rows(inputs), group = stride * at_least(1, TOGETHER / (steps * inputs));
    float *more = room.edge + WIDE * steps;
    for (long begin = first; begin < tokens; begin += group) {
        const long end = at_most(tokens, begin + group);
        for (long n = begin; n < end; n += stride)
            memset(received + n * steps * inputs, 0, (size_t)(steps * inputs) * sizeof(float));
        for (long j = 0; j < outputs; j += most)
            for (long n = begin; n < end; n += stride) {
                const long start = at_most(steps, at_least(0, n - lag)), row = n * steps + start;
                if (start < steps)
                    block(&m, x + n * inputs, n, j, relevance + row * outputs + j, received + row * inputs, &room, more,
                          at_most(most, outputs - j), steps - start);
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
