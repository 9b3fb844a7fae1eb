/* Redistribution through the core of attention; see linear.c, and operations/attention_core.py for the formulas.
 *
 * Heads are shared out. For one head:
 * 1. query by query, G[d, k] = p_k (v_kd - o_d), what it gives the query, and the normalisers; relevance over these is
 *    `share` [steps, d], and the query's own relevance a product of it;
 * 2. for WIDE keys and some steps, of which what arrives stays in the second-level cache, and for QUERIES queries at a
 *    time: share times G+ and G- is `routed`, which goes to the keys by the positive and the negative part of key times
 *    query; shares go to the values by attention weight.
 * G is made again where it is needed, a tile at a time. What a step keeps of its relevance is known after 1, so that all
 * is written with the factor that keeps the head's total.
 */
#include "tiles.h"

#define QUERIES 8
#define FEATURES 64    /* of values that are summed over at a time */
#define CHUNK_STEPS 36 /* at most */
#define ROUNDING 3e-7  /* by which totals may be off without being mended */

/* As compiled.py fills it in. Heads are inside in relevance and in what is received: [positions, steps, heads, width]. */
typedef struct {
    const float *query, *key, *value; /* [heads, positions, width] */
    const float *weights, *slope;     /* [heads, queries, keys]; slope may be NULL */
    const float *relevance;
    float *to_query, *to_key, *to_value;
    unsigned char *lost;              /* [heads, steps]: 1 where a head had nowhere to send its relevance */
    long heads, queries, keys, steps, width, value_width, lag;
    long causal;                      /* query i sees keys 0 to i */
    long own_step;                    /* query i stands for step i alone: one step in relevance and to_query */
} Attention;

/* A head in the memory of one thread. Widths e of queries and keys, d of values, and keys are padded to whole tiles. */
typedef struct {
    long e, d, keys, groups, carried; /* groups: of FEATURES; carried: steps of a query */
    float *query, *key;               /* [queries, e], [keys, e] */
    float *key_features, *value_features; /* [e, keys], [d, keys] */
    float *weights, *slope;           /* [keys], of one query */
    float *sums;                      /* [2, keys], of one query */
    float *mean;                      /* [queries, d]: of values, as differences to that of the key `top` */
    float *gain;                      /* [d, WIDE]: G */
    float *of_query;                  /* [d, e] */
    float *total, *of_total;          /* [d]: normalisers, and 1 over them */
    float *share;                     /* [queries, groups, carried, FEATURES] */
    float *rising, *falling;          /* [d, WIDE]: G+ and G- */
    float *products;                  /* [WIDE, e / WIDE, 2 QUERIES, WIDE]: parts of key times query */
    float *routed;                    /* [2 QUERIES, CHUNK_STEPS, WIDE] */
    float *given;                     /* [WIDE, QUERIES]: weights */
    float *to_key, *to_value;         /* [WIDE, CHUNK_STEPS, e], [WIDE, CHUNK_STEPS, d] */
    double *sent, *arrived;           /* [steps] */
    float *scale;                     /* [steps] */
    int32_t *top;                     /* [queries] */
} Head;

INLINE long padded(long n) { return (n + WIDE - 1) / WIDE * WIDE; }

INLINE float *take(uintptr_t *memory, long n) {
    float *found = (float *)*memory;
    *memory += (uintptr_t)(n + n % 2) * sizeof(float);
    return found;
}

/* Lays a head out in memory; returns how many floats that takes. */
static long carve(Head *m, const Attention *a, float *memory) {
    uintptr_t rest = (uintptr_t)memory;
    const long e = m->e = padded(a->width), d = m->d = padded(a->value_width), keys = m->keys = padded(a->keys);
    m->groups = (d + FEATURES - 1) / FEATURES, m->carried = a->own_step ? 1 : a->steps;
    m->sent = (double *)take(&rest, 2 * a->steps);
    m->arrived = (double *)take(&rest, 2 * a->steps);
    m->scale = take(&rest, a->steps);
    m->top = (int32_t *)take(&rest, a->queries);
    m->query = take(&rest, a->queries * e);
    m->key = take(&rest, keys * e);
    m->key_features = take(&rest, keys * e);
    m->value_features = take(&rest, keys * d);
    m->weights = take(&rest, keys);
    m->slope = take(&rest, keys);
    m->sums = take(&rest, 2 * keys);
    m->mean = take(&rest, a->queries * d);
    m->gain = take(&rest, d * WIDE);
    m->of_query = take(&rest, d * e);
    m->total = take(&rest, d);
    m->of_total = take(&rest, d);
    m->share = take(&rest, a->queries * m->groups * m->carried * FEATURES);
    m->rising = take(&rest, d * WIDE);
    m->falling = take(&rest, d * WIDE);
    m->products = take(&rest, 2 * QUERIES * WIDE * e);
    m->routed = take(&rest, 2 * QUERIES * CHUNK_STEPS * WIDE);
    m->given = take(&rest, WIDE * QUERIES);
    m->to_key = take(&rest, WIDE * CHUNK_STEPS * e);
    m->to_value = take(&rest, WIDE * CHUNK_STEPS * d);
    return (long)((rest - (uintptr_t)memory) / sizeof(float));
}

/* Floats of memory that attention() works in. */
long attention_memory(const Attention *a) {
    Head m;
    return carve(&m, a, NULL);
}

/* The first step that a query carries. */
INLINE long first_step(const Attention *a, long q) {
    return a->own_step ? q : at_most(a->steps, at_least(0, q - a->lag));
}

INLINE long seen_keys(const Attention *a, long q) { return a->causal ? at_most(a->keys, q + 1) : a->keys; }

static void clear(float *p, long n) { memset(p, 0, (size_t)n * sizeof(float)); }

/* The states of a head, padded with zeros. */
static void pack(Head *m, const Attention *a, long head) {
    const float *query = a->query + head * a->queries * a->width, *key = a->key + head * a->keys * a->width;
    const float *value = a->value + head * a->keys * a->value_width;
    clear(m->query, a->queries * m->e), clear(m->key, m->keys * m->e);
    clear(m->key_features, m->keys * m->e), clear(m->value_features, m->keys * m->d);
    clear(m->weights, m->keys), clear(m->slope, m->keys), clear(m->total, m->d);
    clear(m->mean, a->queries * m->d), memset(m->top, 0, (size_t)a->queries * sizeof(int32_t));
    for (long t = 0; t < a->steps; t++) m->sent[t] = m->arrived[t] = 0;
    for (long q = 0; q < a->queries; q++)
        memcpy(m->query + q * m->e, query + q * a->width, (size_t)a->width * sizeof(float));
    for (long k = 0; k < a->keys; k++) {
        for (long e = 0; e < a->width; e++)
            m->key[k * m->e + e] = m->key_features[e * m->keys + k] = key[k * a->width + e];
        for (long d = 0; d < a->value_width; d++) m->value_features[d * m->keys + k] = value[k * a->value_width + d];
    }
}

/* ---- 1. queries ---- */

/* Weights and slope of a query, and its largest weight. */
static void pack_weights(Head *m, const Attention *a, long head, long q) {
    const long row = (head * a->queries + q) * a->keys;
    memcpy(m->weights, a->weights + row, (size_t)a->keys * sizeof(float));
    if (a->slope) memcpy(m->slope, a->slope + row, (size_t)a->keys * sizeof(float));
    m->top[q] = 0;
    for (long k = 1; k < a->keys; k++)
        if (m->weights[k] > m->weights[m->top[q]]) m->top[q] = (int32_t)k;
}

/* For each key, the sums of the positive and of the negative parts of key times query. */
static void sum_products(const Head *m, const float *query, long keys) {
    for (long k = 0; k < keys; k += WIDE) {
        floats a0 = {0}, a1 = {0}, b0 = {0}, b1 = {0};
        for (long e = 0; e < m->e; e++) {
            const float *at = m->key_features + e * m->keys + k;
            const floats z0 = load(at) * fill(query[e]), z1 = load(at + LANES) * fill(query[e]);
            a0 += relu(z0), a1 += relu(z1), b0 += relu(-z0), b1 += relu(-z1);
        }
        store(m->sums + k, a0), store(m->sums + k + LANES, a1);
        store(m->sums + m->keys + k, b0), store(m->sums + m->keys + k + LANES, b1);
    }
}

static void average(const Head *m, long q, long keys) {
    for (long d = 0; d < m->d; d++) {
        const float *value = m->value_features + d * m->keys;
        const floats best = fill(value[m->top[q]]);
        floats a = {0}, b = {0};
        for (long k = 0; k < keys; k += WIDE) {
            a += load(m->weights + k) * (load(value + k) - best);
            b += load(m->weights + k + LANES) * (load(value + k + LANES) - best);
        }
        m->mean[q * m->d + d] = add_lanes(a + b);
    }
}

/* G of one query and WIDE keys from k on, from the differences to the value with the largest weight, which are exact
 * also where that weight is almost 1. weights, slope: of these keys; out: [d, WIDE] */
static void expand(const Head *m, long q, long k, const float *weights, const float *slope, float *out) {
    floats p0 = load(weights), p1 = load(weights + LANES);
    if (slope) p0 *= load(slope), p1 *= load(slope + LANES);
    for (long d = 0; d < m->d; d++, out += WIDE) {
        const float *value = m->value_features + d * m->keys;
        const floats best = fill(value[m->top[q]]), mean = fill(m->mean[q * m->d + d]);
        store(out, (load(value + k) - best - mean) * p0);
        store(out + LANES, (load(value + k + LANES) - best - mean) * p1);
    }
}

/* What WIDE keys and their values have of the normalisers. */
static void add_totals(const Head *m, long k) {
    const float *along = m->sums + k, *against = m->sums + m->keys + k;
    for (long d = 0; d < m->d; d++) {
        floats total = {0};
        for (long i = 0; i < WIDE; i += LANES) {
            const floats g = load(m->gain + d * WIDE + i), v = load(m->value_features + d * m->keys + k + i);
            total += relu(v) * load(m->weights + k + i) + relu(g) * load(along + i) + relu(-g) * load(against + i);
        }
        m->total[d] += add_lanes(total);
    }
}

/* Normalisers of a query's outputs, and of_query[d, e] = relu(q_e sum_k G[d, k] key[k, e]). */
static void normalise(const Head *m, const Attention *a, long q, long keys) {
    clear(m->of_query, m->d * m->e), clear(m->total, m->d);
    for (long k = 0; k < keys; k += WIDE) {
        expand(m, q, k, m->weights + k, a->slope ? m->slope + k : NULL, m->gain);
        add_totals(m, k);
        for (long e = 0; e < m->e; e += WIDE)
            multiply_all(m->gain, WIDE, 1, m->key + k * m->e + e, m->e, m->of_query + e, m->e, at_most(WIDE, keys - k),
                         m->d);
    }
    for (long d = 0; d < m->d; d++) {
        floats total = {0};
        for (long e = 0; e < m->e; e += LANES) {
            float *at = m->of_query + d * m->e + e;
            const floats z = relu(load(at) * load(m->query + q * m->e + e));
            store(at, z);
            total += z;
        }
        m->total[d] += add_lanes(total);
    }
}

/* share = relevance / total, for one query; what is sent, and what will arrive of it, is added to the steps' sums. */
static void divide(const Head *m, const Attention *a, long head, long q) {
    const long first = a->own_step ? 0 : first_step(a, q), pitch = a->heads * a->value_width;
    float *share = m->share + q * m->groups * m->carried * FEATURES, *inverse = m->of_total;
    clear(share, m->groups * m->carried * FEATURES);
    for (long d = 0; d < m->d; d++) inverse[d] = 1 / (m->total[d] > TINY ? m->total[d] : TINY);
    for (long t = first; t < m->carried; t++) {
        const float *relevance = a->relevance + (q * m->carried + t) * pitch + head * a->value_width;
        const long step = a->own_step ? q : t;
        m->sent[step] += sum(relevance, a->value_width);
        for (long g = 0; g < m->groups; g++) {
            float *out = share + (g * m->carried + t) * FEATURES;
            const long width = at_most(FEATURES, a->value_width - g * FEATURES);
            floats arrives = {0};
            for (long d = 0; d < width; d++) out[d] = relevance[g * FEATURES + d] * inverse[g * FEATURES + d];
            for (long d = 0; d < width; d += LANES) arrives += load(out + d) * load(m->total + g * FEATURES + d);
            m->arrived[step] += add_lanes(arrives);
        }
    }
}

/* What queries receive: share times of_query, not yet scaled. */
static void send_to_query(const Head *m, const Attention *a, long head, long q) {
    const long first = a->own_step ? 0 : first_step(a, q), pitch = a->heads * a->width;
    float *out = a->to_query + q * m->carried * pitch + head * a->width;
    for (long t = 0; t < first; t++) clear(out + t * pitch, a->width);
    for (long t = first; t < m->carried; t += CHUNK_STEPS) {
        const long steps = at_most(CHUNK_STEPS, m->carried - t);
        for (long e = 0; e < m->e; e += WIDE) {
            clear(m->routed, steps * WIDE);
            for (long g = 0; g < m->groups; g++)
                multiply_all(m->share + ((q * m->groups + g) * m->carried + t) * FEATURES, FEATURES, 1,
                             m->of_query + g * FEATURES * m->e + e, m->e, m->routed, WIDE,
                             at_most(FEATURES, m->d - g * FEATURES), steps);
            for (long i = 0; i < steps; i++)
                memcpy(out + (t + i) * pitch + e, m->routed + i * WIDE,
                       (size_t)at_most(WIDE, a->width - e) * sizeof(float));
        }
    }
}

/* ---- 2. keys and values ---- */

/* WIDE keys from `key` on, `steps` steps from `step` on. */
typedef struct {
    long key, step, steps;
} Tile;

/* Parts of key times query, and weights, for a block of queries and the keys of a tile. */
static void prepare(const Head *m, const Attention *a, const Tile *tile, long head, long q, long queries) {
    for (long i = 0; i < queries; i++)
        for (long k = 0; k < WIDE; k++) {
            const long key = tile->key + k;
            m->given[k * QUERIES + i] = key < a->keys ? a->weights[(head * a->queries + q + i) * a->keys + key] : 0;
            for (long e = 0; e < m->e; e += WIDE) {
                float *out = m->products + ((k * m->e + e) * QUERIES + i * WIDE) * 2;
                for (long l = 0; l < WIDE; l += LANES) {
                    const floats z = load(m->key + key * m->e + e + l) * load(m->query + (q + i) * m->e + e + l);
                    store(out + l, relu(z)), store(out + WIDE + l, relu(-z));
                }
            }
        }
}

/* routed[i, sign, t, k] = sum_d share[t, d] G[d, k] of one sign; share at the tile's first step. */
static void route(const Head *m, const Attention *a, const Tile *tile, long head, long q, long i, const float *share,
                  long steps) {
    const long row = (head * a->queries + q + i) * a->keys, keys = at_most(WIDE, a->keys - tile->key);
    float weights[WIDE] = {0}, slope[WIDE] = {0};
    memcpy(weights, a->weights + row + tile->key, (size_t)keys * sizeof(float));
    if (a->slope) memcpy(slope, a->slope + row + tile->key, (size_t)keys * sizeof(float));
    expand(m, q + i, tile->key, weights, a->slope ? slope : NULL, m->gain);
    for (long n = 0; n < m->d * WIDE; n += LANES) {
        const floats g = load(m->gain + n);
        store(m->rising + n, relu(g)), store(m->falling + n, relu(-g));
    }
    for (int sign = 0; sign < 2; sign++) {
        float *out = m->routed + (2 * i + sign) * steps * WIDE;
        clear(out, steps * WIDE);
        for (long g = 0; g < m->groups; g++)
            multiply_all(share + g * m->carried * FEATURES, FEATURES, 1,
                         (sign ? m->falling : m->rising) + g * FEATURES * WIDE, WIDE, out, WIDE,
                         at_most(FEATURES, m->d - g * FEATURES), steps);
    }
}

/* Adds what a block of queries sends to the keys and values of a tile, from step `late` of it on. */
static void send(const Head *m, const Attention *a, const Tile *tile, long head, long q, long queries, long late) {
    const long steps = tile->steps - late, each = m->groups * m->carried * FEATURES;
    const long keys = at_most(WIDE, a->keys - tile->key);
    const float *share = m->share + q * each + (a->own_step ? 0 : tile->step + late) * FEATURES;
    prepare(m, a, tile, head, q, queries);
    for (long i = 0; i < queries; i++) route(m, a, tile, head, q, i, share + i * each, steps);
    for (long t = 0; t < steps; t += MOST_STEPS) /* outside, so that what is routed stays in the first-level cache */
        for (long k = 0; k < keys; k++)
            for (long e = 0; e < m->e; e += WIDE)
                multiply_all(m->routed + t * WIDE + k, WIDE, steps * WIDE, m->products + (k * m->e + e) * QUERIES * 2,
                             WIDE, m->to_key + (k * tile->steps + late + t) * m->e + e, m->e, 2 * queries,
                             at_most(MOST_STEPS, steps - t));
    for (long t = 0; t < steps; t++)
        for (long d = 0; d < m->d; d += WIDE)
            multiply_all(m->given, QUERIES, 1, share + (d / FEATURES * m->carried + t) * FEATURES + d % FEATURES, each,
                         m->to_value + (late + t) * m->d + d, tile->steps * m->d, queries, keys);
}

/* Writes what the keys and values of a tile received, scaled; sums it in `arrived`. */
static void write(const Head *m, const Attention *a, const Tile *tile, long head) {
    for (long k = 0; k < at_most(WIDE, a->keys - tile->key); k++)
        for (long t = 0; t < tile->steps; t++) {
            const long key = tile->key + k, row = (key * a->steps + tile->step + t) * a->heads + head;
            const float *of_key = m->to_key + (k * tile->steps + t) * m->e;
            const float *of_value = m->to_value + (k * tile->steps + t) * m->d;
            const float *value = a->value + (head * a->keys + key) * a->value_width, scale = m->scale[tile->step + t];
            float *to_key = a->to_key + row * a->width, *to_value = a->to_value + row * a->value_width;
            for (long e = 0; e < a->width; e++) to_key[e] = of_key[e] * scale;
            for (long d = 0; d < a->value_width; d++) to_value[d] = of_value[d] * positive(value[d]) * scale;
            m->arrived[tile->step + t] += sum(to_key, a->width) + sum(to_value, a->value_width);
        }
}

/* All that a tile receives. */
static void fill_tile(const Head *m, const Attention *a, const Tile *tile, long head) {
    clear(m->to_key, WIDE * tile->steps * m->e), clear(m->to_value, WIDE * tile->steps * m->d);
    if (a->own_step) {
        send(m, a, tile, head, tile->step, 1, 0);
    } else {
        for (long q = a->causal ? tile->key / QUERIES * QUERIES : 0; q < a->queries; q += QUERIES) {
            const long late = at_least(0, first_step(a, q) - tile->step);
            if (late < tile->steps) send(m, a, tile, head, q, at_most(QUERIES, a->queries - q), late);
        }
    }
    write(m, a, tile, head);
}

/* ---- heads ---- */

/* The factors that keep the totals; arrived starts anew, with what queries receive. */
static void scale_queries(const Head *m, const Attention *a, long head) {
    for (long t = 0; t < a->steps; t++) {
        const float scale = (float)(m->sent[t] / m->arrived[t]);
        m->scale[t] = isfinite(scale) ? scale : 0;
        m->arrived[t] = 0;
    }
    for (long q = 0; q < a->queries; q++)
        for (long t = 0; t < m->carried; t++) {
            float *out = a->to_query + ((q * m->carried + t) * a->heads + head) * a->width;
            const long step = a->own_step ? q : t;
            for (long e = 0; e < a->width; e++) out[e] *= m->scale[step];
            m->arrived[step] += sum(out, a->width);
        }
}

/* Rescales step t where rounding, of denormal numbers say, has made its total another one. */
static void mend(const Head *m, const Attention *a, long head, long t) {
    const float scale = (float)(m->sent[t] / m->arrived[t]), kept = isfinite(scale) ? scale : 0;
    for (long k = 0; k < a->keys; k++) {
        const long row = (k * a->steps + t) * a->heads + head;
        for (long e = 0; e < a->width; e++) a->to_key[row * a->width + e] *= kept;
        for (long d = 0; d < a->value_width; d++) a->to_value[row * a->value_width + d] *= kept;
    }
    for (long q = a->own_step ? t : 0; q < (a->own_step ? t + 1 : a->queries); q++) {
        float *out = a->to_query + ((q * m->carried + (a->own_step ? 0 : t)) * a->heads + head) * a->width;
        for (long e = 0; e < a->width; e++) out[e] *= kept;
    }
    a->lost[head * a->steps + t] = !isfinite(scale) && m->sent[t] != 0;
}

static void one_head(Head *m, const Attention *a, long head) {
    pack(m, a, head);
    for (long q = 0; q < a->queries; q++) {
        const long keys = seen_keys(a, q);
        if (first_step(a, q) < a->steps) {
            pack_weights(m, a, head, q);
            sum_products(m, m->query + q * m->e, keys);
            average(m, q, keys);
            normalise(m, a, q, keys);
        }
        divide(m, a, head, q);
        send_to_query(m, a, head, q);
    }
    scale_queries(m, a, head);
    const long chunks = (a->steps + CHUNK_STEPS - 1) / CHUNK_STEPS;
    const long most = a->own_step ? 1 : (a->steps + chunks - 1) / chunks;
    for (long key = 0; key < a->keys; key += WIDE)
        for (long step = 0; step < a->steps; step += most) {
            const Tile tile = {key, step, at_most(most, a->steps - step)};
            fill_tile(m, a, &tile, head);
        }
    for (long t = 0; t < a->steps; t++) {
        a->lost[head * a->steps + t] = 0;
        if (!(fabs(m->arrived[t] - m->sent[t]) <= ROUNDING * fabs(m->sent[t]))) mend(m, a, head, t);
    }
}

void attention(const Attention *a, float *memory, long first, long stride) {
    Head m;
    carve(&m, a, memory);
    for (long head = first; head < a->heads; head += stride) one_head(&m, a, head);
}
