/* Redistribution through norms; see linear.c.
 *
 * RMS norm: as operations/norms.py says, the part of an output's own sign goes to its own input, the other part to the other
 * inputs by x_i^2.
 *
 * Layer norm:
 * With v = (x - mean) / sigma and gain_j = weight_j / sigma, input i adds to output j (i not j)
 *     f_j(v_i) = -gain_j / d (mean + sigma v_i) (1 + v_j v_i) + bias_j / d,
 * a quadratic in v_i. Sorted by v, the inputs with a positive f_j form one interval, or all but one interval. Sums over
 * them come from prefix sums of 1, v, v^2. What comes back to the input at place p is a0 + a1 v + a2 v^2, where a0, a1, a2
 * are sums of coefficients times shares over the outputs whose interval holds p: prefix sums again. The own input (i = j)
 * is corrected. All in float64, because intervals are differences.
 */
#include "tiles.h"

#define STEPS (BYTES / 8) /* that go together */
typedef double doubles __attribute__((vector_size(BYTES), aligned(8), may_alias));

static double sum_doubles(const double *p, long n) {
    doubles a = {0};
    double total = 0;
    long i = 0;
    for (; i + STEPS <= n; i += STEPS) a += *(const doubles *)(p + i);
    for (; i < n; i++) total += p[i];
    for (int lane = 0; lane < STEPS; lane++) total += a[lane];
    return total;
}

/* ---- RMS norm ---- */

/* Whether too little is left of a sum without one of its terms for a difference of the two to be more than rounding. */
INLINE int is_most(double term, double total) { return !(total - term > 1e-6 * total); }

/* The sum of all but number i. */
static double sum_of_others(const double *p, long n, long i, double total) {
    return is_most(p[i], total) ? sum_doubles(p, i) + sum_doubles(p + i + 1, n - i - 1) : total - p[i];
}

/* One step; own: [d], 1 where an output sends to its own input. */
static void send_by_square(const double *square, const double *inverse, const int32_t *own, const float *sent, float *out,
                           double *share, long d) {
    long direct = 0;
    int any = 0;
    for (long i = 0; i < d; i++) share[i] = sent[i] * inverse[i], any |= share[i] != 0;
    const double total = sum_doubles(share, d);
    for (long i = 0; i < d; i++) {
        out[i] = (own[i] ? sent[i] : 0) + (float)(square[i] * (total - share[i]));
        direct += is_most(share[i], total);
    }
    for (long i = 0; any && direct && i < d; i++)
        if (is_most(share[i], total))
            out[i] = (own[i] ? sent[i] : 0) + (float)(square[i] * sum_of_others(share, d, i, total));
    conserve(out, d, sum(sent, d));
}

/* memory: [4, d] */
void rms_norm(const float *x, const float *weight, const float *relevance, float *received, double *memory, long first,
              long stride, long tokens, long steps, long d) {
    double *square = memory, *inverse = memory + d, *share = memory + 2 * d;
    int32_t *own = (int32_t *)(memory + 3 * d);
    for (long n = first; n < tokens; n += stride) {
        float largest = TINY;
        for (long i = 0; i < d; i++) largest = fabsf(x[n * d + i]) > largest ? fabsf(x[n * d + i]) : largest;
        for (long i = 0; i < d; i++) square[i] = (double)(x[n * d + i] / largest) * (double)(x[n * d + i] / largest);
        const double squares = sum_doubles(square, d);
        for (long i = 0; i < d; i++) {
            const double others = sum_of_others(square, d, i, squares);
            const int opposed = (weight[i] > 0 && x[n * d + i] < 0) || (weight[i] < 0 && x[n * d + i] > 0);
            inverse[i] = opposed ? 1 / (others > TINY ? others : TINY) : 0; /* of outputs that send to other inputs */
            own[i] = (weight[i] > 0 && x[n * d + i] > 0) || (weight[i] < 0 && x[n * d + i] < 0);
        }
        for (long row = n * steps; row < (n + 1) * steps; row++)
            send_by_square(square, inverse, own, relevance + row * d, received + row * d, share, d);
    }
}

/* ---- layer norm ---- */

typedef struct {
    double c0, c1, c2;    /* f_j, negated where the positive inputs are outside of the interval */
    double own;           /* what its own input's part is more than f_j's */
    double inverse;       /* of the normaliser */
    int32_t from, to;     /* places of the interval */
    int32_t outside, direct;
} Output;

typedef struct {
    double *v, *s1, *s2;  /* by place: the sorted v, padded with infinity, and sums of v and v^2 before a place */
    double *ends;         /* [places + 1, 3, STEPS] */
    double *share, *back; /* [d, STEPS] */
    double *lower, *upper; /* roots, by output */
    int32_t *from, *to;   /* places of these */
    Output *outputs;
    uint32_t *keys, *other_keys;
    int32_t *order, *other_order, *place;
    long d, padded;
} Norm;

static long power_of_two(long d) {
    long power = 1;
    while (power <= d) power *= 2;
    return power;
}

/* Doubles of memory that layer_norm() works in. */
long layer_norm_memory(long d) { return power_of_two(d) + (d + 1) * (2 + 3 * STEPS) + d * (2 * STEPS + 2 + 8 + 7); }

static Norm carve(double *memory, long d) {
    Norm m = {.d = d, .padded = power_of_two(d)};
    m.v = memory, memory += m.padded;
    m.s1 = memory, memory += d + 1;
    m.s2 = memory, memory += d + 1;
    m.ends = memory, memory += (d + 1) * 3 * STEPS;
    m.share = memory, memory += d * STEPS;
    m.back = memory, memory += d * STEPS;
    m.lower = memory, memory += d;
    m.upper = memory, memory += d;
    m.outputs = (Output *)memory, memory += d * (long)(sizeof(Output) / sizeof(double));
    m.keys = (uint32_t *)memory, memory += d;
    m.other_keys = (uint32_t *)memory, memory += d;
    m.order = (int32_t *)memory, memory += d;
    m.other_order = (int32_t *)memory, memory += d;
    m.place = (int32_t *)memory, memory += d;
    m.from = (int32_t *)memory, memory += d;
    m.to = (int32_t *)memory;
    return m;
}

/* order: the inputs by ascending x; a radix sort of the bits. */
static void sort(const float *x, Norm *m) {
    for (long i = 0; i < m->d; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        m->keys[i] = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
        m->order[i] = (int32_t)i;
    }
    for (int digit = 0; digit < 32; digit += 8) {
        int32_t start[257] = {0};
        for (long i = 0; i < m->d; i++) start[(m->keys[i] >> digit & 255) + 1]++;
        for (int k = 0; k < 256; k++) start[k + 1] += start[k];
        for (long i = 0; i < m->d; i++) {
            const int32_t to = start[m->keys[i] >> digit & 255]++;
            m->other_keys[to] = m->keys[i], m->other_order[to] = m->order[i];
        }
        uint32_t *keys = m->keys;
        int32_t *order = m->order;
        m->keys = m->other_keys, m->other_keys = keys;
        m->order = m->other_order, m->other_order = order;
    }
    for (long p = 0; p < m->d; p++) m->place[m->order[p]] = (int32_t)p;
}

static double f(const Output *o, double v) { return o->c0 + v * (o->c1 + v * o->c2); }

/* Between which v, or (o->outside) outside of which, f_j is positive. */
static void roots(Output *o, double *lower, double *upper) {
    o->outside = o->c2 > 0;
    *lower = -INFINITY, *upper = INFINITY;
    if (o->c2 == 0) {
        if (o->c1 > 0) *lower = -o->c0 / o->c1;
        else if (o->c1 < 0) *upper = -o->c0 / o->c1;
        else if (o->c0 <= 0) *upper = -INFINITY;
        return;
    }
    const double discriminant = o->c1 * o->c1 - 4 * o->c2 * o->c0;
    if (discriminant <= 0) { /* the sign of c2 everywhere */
        *upper = -INFINITY;
        return;
    }
    const double q = -0.5 * (o->c1 + copysign(sqrt(discriminant), o->c1)), one = q / o->c2, other = o->c0 / q;
    *lower = one < other ? one : other, *upper = one < other ? other : one;
}

/* below[j] = the number of v below bound[j]: a search in all at a time, whose steps have no branches to guess. */
static void count_below(const Norm *m, const double *bound, int32_t *below) {
    memset(below, 0, (size_t)m->d * sizeof(int32_t));
    for (long half = m->padded / 2; half > 0; half /= 2)
        for (long j = 0; j < m->d; j++) below[j] += (int32_t)half & -(int32_t)(m->v[below[j] + half - 1] < bound[j]);
}

/* The normaliser of output j, and how its relevance is to be sent. */
static void normalise(Norm *m, long j, double own) {
    Output *o = m->outputs + j;
    const long d = m->d;
    const double v = m->v[m->place[j]];
    if (o->to < o->from) o->to = o->from;
    const int inside = (o->from <= m->place[j] && m->place[j] < o->to) != o->outside;
    const long within = o->to - o->from, others = (o->outside ? d - within : within) - inside;
    double s1 = m->s1[o->to] - m->s1[o->from], s2 = m->s2[o->to] - m->s2[o->from];
    if (o->outside) s1 = m->s1[d] - s1, s2 = m->s2[d] - s2;
    double total = o->c0 * (double)(others + inside) + o->c1 * s1 + o->c2 * s2 - (inside ? f(o, v) : 0);
    const double full = f(o, v) + own, kept = full > 0 ? full : 0;
    o->own = kept - (inside ? f(o, v) : 0);
    o->direct = others > 0 && total < 1e-7 * (double)d * (fabs(o->c0) + fabs(o->c1) + fabs(o->c2));
    if (o->direct || others == 0) { /* nothing but rounding would be left of the sums */
        total = 0;
        for (long p = 0; o->direct && p < d; p++) {
            const double z = p == m->place[j] ? 0 : f(o, m->v[p]);
            total += z > 0 ? z : 0;
        }
        o->from = o->to = 0, o->outside = 0, o->own = kept;
    }
    total += kept;
    o->inverse = total > 0 ? 1 / (total > TINY ? total : TINY) : 0;
    if (o->outside) o->c0 = -o->c0, o->c1 = -o->c1, o->c2 = -o->c2;
}

/* Everything that all steps share. */
static void prepare(Norm *m, const float *x, const float *weight, const float *bias, double eps) {
    const long d = m->d;
    double mean = 0, variance = 0;
    for (long i = 0; i < d; i++) mean += x[i];
    mean /= (double)d;
    for (long i = 0; i < d; i++) variance += (x[i] - mean) * (x[i] - mean);
    const double sigma = sqrt(variance / (double)d + eps);
    sort(x, m);
    m->s1[0] = m->s2[0] = 0;
    for (long p = 0; p < d; p++) {
        const double v = m->v[p] = sigma > 0 ? (x[m->order[p]] - mean) / sigma : 0;
        m->s1[p + 1] = m->s1[p] + v, m->s2[p + 1] = m->s2[p] + v * v;
    }
    for (long p = d; p < m->padded; p++) m->v[p] = INFINITY;
    for (long j = 0; j < d; j++) {
        const double gain = sigma > 0 ? weight[j] / sigma / (double)d : 0, v = m->v[m->place[j]];
        m->outputs[j] = (Output){.c0 = (bias ? bias[j] / (double)d : 0) - gain * mean,
                                 .c1 = -gain * (sigma + mean * v),
                                 .c2 = -gain * sigma * v};
        roots(m->outputs + j, m->lower + j, m->upper + j);
    }
    count_below(m, m->lower, m->from);
    count_below(m, m->upper, m->to);
    for (long j = 0; j < d; j++) {
        m->outputs[j].from = m->from[j], m->outputs[j].to = m->to[j];
        normalise(m, j, sigma > 0 ? weight[j] / sigma * x[j] : 0);
    }
}

/* Up to STEPS steps of one token; relevance and received: [steps, d]. */
static void send(Norm *m, const float *relevance, float *received, long steps) {
    const long d = m->d;
    doubles a0 = {0}, a1 = {0}, a2 = {0}, arrived = {0}, total = {0};
    doubles *ends = (doubles *)m->ends, *share = (doubles *)m->share, *back = (doubles *)m->back;
    memset(m->ends, 0, (size_t)((d + 1) * 3) * sizeof(doubles));
    memset(m->share, 0, (size_t)d * sizeof(doubles));
    for (long t = 0; t < steps; t++)
        for (long j = 0; j < d; j++) m->share[j * STEPS + t] = relevance[t * d + j];
    for (long j = 0; j < d; j++) {
        const Output *o = m->outputs + j;
        total += share[j];
        const doubles s = share[j] *= o->inverse, z0 = s * o->c0, z1 = s * o->c1, z2 = s * o->c2;
        doubles *from = ends + 3 * o->from, *to = ends + 3 * o->to;
        from[0] += z0, from[1] += z1, from[2] += z2;
        to[0] -= z0, to[1] -= z1, to[2] -= z2;
        if (o->outside) a0 -= z0, a1 -= z1, a2 -= z2;
    }
    for (long p = 0; p < d; p++) {
        a0 += ends[3 * p], a1 += ends[3 * p + 1], a2 += ends[3 * p + 2];
        back[m->order[p]] = a0 + m->v[p] * (a1 + m->v[p] * a2);
    }
    for (long j = 0; j < d; j++) {
        const Output *o = m->outputs + j;
        back[j] += share[j] * o->own;
        for (long p = 0; o->direct && p < d; p++)
            if (p != m->place[j] && f(o, m->v[p]) > 0) back[m->order[p]] += share[j] * f(o, m->v[p]);
    }
    for (long i = 0; i < d; i++) {
        for (int t = 0; t < STEPS; t++) back[i][t] = back[i][t] > 0 ? back[i][t] : 0;
        arrived += back[i];
    }
    for (long t = 0; t < steps; t++) {
        double scale = total[t] / arrived[t], rise = 0;
        if (!isfinite(scale)) scale = 0, rise = total[t] / (double)d;
        for (long i = 0; i < d; i++) received[t * d + i] = (float)(m->back[i * STEPS + t] * scale + rise);
    }
}

void layer_norm(const float *x, const float *weight, const float *bias, double eps, const float *relevance,
                float *received, double *memory, long first, long stride, long tokens, long steps, long d, long lag) {
    Norm m = carve(memory, d);
    for (long n = first; n < tokens; n += stride) {
        const long start = at_most(steps, at_least(0, n - lag));
        memset(received + n * steps * d, 0, (size_t)(start * d) * sizeof(float));
        if (start == steps) continue;
        prepare(&m, x + n * d, weight, bias, eps);
        for (long t = start; t < steps; t += STEPS) {
            const long row = (n * steps + t) * d;
            send(&m, relevance + row, received + row, at_most(STEPS, steps - t));
        }
    }
}
