/* SPDX-License-Identifier: MIT */
/*
 * pairs: says how B compares with A from interleaved pairs of measurements, with an interval.
 *
 *   pairs [--diff] [--json] < file        a line is one pair: "A B"
 *
 * Both members of a pair ran back to back, so what a shared machine does to one it mostly does to
 * both; only differences within pairs are used. The estimate is Hodges-Lehmann's (the median of all
 * means of two pairs, each pair with itself included), of log(B/A), so it is a ratio, or with
 * --diff of B - A. The interval is the one that belongs to it: the shifts that Wilcoxon's
 * signed-rank test would not reject at 5 % (its exact distribution, so no normality and no seed is
 * involved). Medians of A and B are printed beside it. A ratio needs positive values: where a
 * member is zero or less, the difference is used instead, and the output says so. Below six pairs
 * no 95 % interval exists; the widest there is is printed with its own confidence.
 *
 * Exit: 0, or 2 with one line on stderr when the input is not pairs of finite numbers.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAIRS_MAX 1000

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_sorted(const double *v, size_t n)
{
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double median(const double *v, size_t n)
{
    static double copy[PAIRS_MAX];
    memcpy(copy, v, n * sizeof(*v));
    qsort(copy, n, sizeof(*copy), by_value);
    return median_of_sorted(copy, n);
}

/*
 * How many of the smallest Walsh means may be cut off at each end so that at least 95 % is left:
 * the largest k with P(W < k) <= 2.5 %, W being the signed-rank sum under no shift. *confidence is
 * what the result really covers.
 */
static size_t cut(size_t n, double *confidence)
{
    size_t sums = n * (n + 1) / 2 + 1, k = 0;
    double *p = calloc(sums, sizeof(*p)), below = 0;
    if (!p)
        exit(2);
    p[0] = 1;
    for (size_t rank = 1; rank <= n; rank++) {
        for (size_t s = sums; s-- > rank;)
            p[s] = (p[s] + p[s - rank]) / 2;
        for (size_t s = 0; s < rank && s < sums; s++)
            p[s] /= 2;
    }
    while (k < sums && below + p[k] <= 0.025)
        below += p[k++];
    if (!k) { /* fewer than six pairs: cut nothing off, and say what that is worth */
        below = p[0];
        k = 1;
    }
    *confidence = 1 - 2 * below;
    free(p);
    return k - 1;
}

int main(int argc, char **argv)
{
    static double a[PAIRS_MAX], b[PAIRS_MAX], d[PAIRS_MAX];
    bool diff = false, json = false, positive = true;
    char line[256];
    size_t n = 0;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--diff")) {
            diff = true;
        } else if (!strcmp(argv[i], "--json")) {
            json = true;
        } else {
            fprintf(stderr, "usage: pairs [--diff] [--json] < file with a pair \"A B\" a line\n");
            return 2;
        }
    }
    while (fgets(line, sizeof(line), stdin)) {
        char rest;
        if (line[0] == '\n' || line[0] == '#')
            continue;
        if (n == PAIRS_MAX || sscanf(line, "%lf %lf %c", &a[n], &b[n], &rest) != 2 ||
            !isfinite(a[n]) || !isfinite(b[n])) {
            fprintf(stderr, "pairs: line %zu: expected two numbers (%d lines at most): %s", n + 1,
                    PAIRS_MAX, line);
            return 2;
        }
        positive = positive && a[n] > 0 && b[n] > 0;
        n++;
    }
    if (!n) {
        fprintf(stderr, "pairs: no pairs on standard input\n");
        return 2;
    }
    bool ratio = !diff && positive;
    for (size_t i = 0; i < n; i++)
        d[i] = ratio ? log(b[i] / a[i]) : b[i] - a[i];

    size_t count = n * (n + 1) / 2, at = 0;
    double *walsh = malloc(count * sizeof(*walsh)), confidence;
    if (!walsh)
        return 2;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++)
            walsh[at++] = (d[i] + d[j]) / 2;
    qsort(walsh, count, sizeof(*walsh), by_value);
    size_t k = cut(n, &confidence);
    double mid = median_of_sorted(walsh, count), low = walsh[k], high = walsh[count - 1 - k];
    free(walsh);
    if (ratio) {
        mid = exp(mid);
        low = exp(low);
        high = exp(high);
    }
    if (json)
        printf("{\"pairs\":%zu,\"median_a\":%.9g,\"median_b\":%.9g,\"kind\":\"%s\","
               "\"estimate\":%.9g,\"low\":%.9g,\"high\":%.9g,\"confidence\":%.4f}\n",
               n, median(a, n), median(b, n), ratio ? "ratio" : "difference", mid, low, high,
               confidence);
    else
        printf("n %zu  A %.6g  B %.6g  %s %.4g  [%.4g, %.4g] at %.1f %%%s\n", n, median(a, n),
               median(b, n), ratio ? "B/A" : "B-A", mid, low, high, 100 * confidence,
               !diff && !ratio ? " (a zero: difference instead of ratio)" : "");
    return 0;
}
