/* Ranks the users of a package that is kept, with every function of the library: rank PACKAGE. */
#include "rewire.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, rewire_message());                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define COUNT(values) (sizeof(values) / sizeof(*(values)))
#define INT64S(values) {REWIRE_INT64, values, COUNT(values)}
#define INT32S(values) {REWIRE_INT32, values, COUNT(values)}

enum { THREADS = 4, RUNS = 8 };

static const char *const USERS[] = {"u0", "u1"};
static const int32_t AGES[] = {2, 3}, COUNTRIES[] = {2, 0};
static const int32_t EVENTS[] = {0, 5, 5};
static const int64_t ITEMS[] = {11, 25, 22, 26, 23}, GENRES[] = {4, 0, 3, 1, 0}, ACTIONS[] = {1, 0, 2, 3, 1};
static const int64_t WATCHED[] = {779, 1113, 208, 1175, 510};
static const int64_t TIMES[] = {1738000000, 1738000613, 1738001226, 1738001839, 1738002452};
static const int64_t OFFERS[] = {0, 3, 4};
static const uint32_t OFFERED[] = {0, 23, 6, 24};
static const int32_t OFFERED_GENRES[] = {3, 2, 1, 0};
static const int64_t NOW[] = {1738040000, 1738040000, 1738040000, 1738040000};

static const rewire_column COLUMNS[] = {
    {REWIRE_CONTEXTUAL, "age_bucket", INT32S(AGES), {0, 0, 0}},
    {REWIRE_CONTEXTUAL, "country", INT32S(COUNTRIES), {0, 0, 0}},
    {REWIRE_HISTORY, "item_id", INT64S(ITEMS), INT32S(EVENTS)},
    {REWIRE_HISTORY, "genre", INT64S(GENRES), INT32S(EVENTS)},
    {REWIRE_HISTORY, "action", INT64S(ACTIONS), INT32S(EVENTS)},
    {REWIRE_HISTORY, "watchtime", INT64S(WATCHED), INT32S(EVENTS)},
    {REWIRE_HISTORY, "timestamp", INT64S(TIMES), INT32S(EVENTS)},
    {REWIRE_CANDIDATES, "item_id", {REWIRE_UINT32, OFFERED, COUNT(OFFERED)}, INT64S(OFFERS)},
    {REWIRE_CANDIDATES, "genre", INT32S(OFFERED_GENRES), INT64S(OFFERS)},
    {REWIRE_CANDIDATES, "timestamp", INT64S(NOW), INT64S(OFFERS)},
};
static const int64_t BEST[] = {23, 6, 0, 24}, POSITIONS[] = {1, 2, 0, 0};
static const float LOGITS[] = {-0.033730656f, 0.480002f,     -0.21502596f, 0.41798425f,
                               -0.5061746f,   -0.045830734f, -0.5783202f,  -0.19326858f};

struct work {
    const rewire_ranker *ranker;
    const rewire_batch *shared;
    const float *logits;
};

static void check_scores(const rewire_scores *scores) {
    CHECK(scores->requests == 2 && scores->candidates == 4 && scores->tasks == 2);
    CHECK(memcmp(scores->offsets, OFFERS, sizeof OFFERS) == 0);
    CHECK(memcmp(scores->items, BEST, sizeof BEST) == 0);
    CHECK(memcmp(scores->positions, POSITIONS, sizeof POSITIONS) == 0);
    for (size_t n = 0; n < COUNT(LOGITS); n++) {
        CHECK(fabsf(scores->logits[n] - LOGITS[n]) < 1e-5f);
    }
    CHECK(fabs(scores->scores[0] - 1 / (1 + exp(-scores->logits[0]))) < 1e-6);
}

/* With a batch of its own and with one that all threads read. */
static void *rank_often(void *argument) {
    const struct work *work = argument;
    for (int run = 0; run < RUNS; run++) {
        rewire_batch *own = NULL;
        rewire_ranking *ranking = NULL;
        rewire_scores scores;
        CHECK(rewire_batch_new(work->ranker, &own) == REWIRE_STATUS_OK);
        CHECK(rewire_batch_extend(own, USERS, 2, COLUMNS, COUNT(COLUMNS)) == REWIRE_STATUS_OK);
        CHECK(rewire_rank(work->ranker, run % 2 ? own : work->shared, &ranking) == REWIRE_STATUS_OK);
        CHECK(rewire_ranking_scores(ranking, &scores) == REWIRE_STATUS_OK);
        CHECK(memcmp(scores.logits, work->logits, sizeof LOGITS) == 0);
        CHECK(rewire_batch_extend(own, NULL, 3, COLUMNS, 1) == REWIRE_STATUS_REQUEST);
        CHECK(strstr(rewire_message(), "`age_bucket` has 2 values: expected 3"));
        rewire_ranking_free(ranking);
        rewire_batch_free(own);
    }
    return NULL;
}

static rewire_options *on_the_cpu(void) {
    rewire_options *options = NULL;
    CHECK(rewire_options_new(&options) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel(options, REWIRE_KERNEL_CPU) == REWIRE_STATUS_OK);
    CHECK(rewire_options_mapping(options, REWIRE_MAPPING_NEVER) == REWIRE_STATUS_OK);
    return options;
}

static void check_faults(const rewire_ranker *ranker, rewire_options *options, rewire_batch *batch, const char *package) {
    rewire_ranker *none = NULL;
    rewire_ranking *ranking = NULL;
    rewire_column column = COLUMNS[7];
    CHECK(rewire_ranker_load("/nowhere", options, &none) == REWIRE_STATUS_MODEL && !none);
    CHECK(strstr(rewire_message(), "/nowhere"));
    CHECK(rewire_options_kernel(options, 7) == REWIRE_STATUS_ARGUMENT && strstr(rewire_message(), "`kernel`"));
    CHECK(rewire_options_kernel(NULL, REWIRE_KERNEL_CPU) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_mapping(options, 7) == REWIRE_STATUS_ARGUMENT && strstr(rewire_message(), "`mapping`"));
    CHECK(rewire_options_mapping(NULL, REWIRE_MAPPING_NEVER) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_adapter(options, NULL) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_pipelines(options, "\xff") == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_new(NULL) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_ranker_load(NULL, options, &none) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_ranker_load("\xff", options, &none) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_ranker_load(package, options, NULL) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_ranker_from_bytes((const uint8_t *)"rewire", 6, options, &none) == REWIRE_STATUS_MODEL);
    CHECK(rewire_rank(NULL, batch, &ranking) == REWIRE_STATUS_ARGUMENT && !ranking);
    CHECK(rewire_rank(ranker, NULL, &ranking) == REWIRE_STATUS_ARGUMENT && !ranking);
    CHECK(rewire_ranking_scores(NULL, NULL) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_batch_extend(batch, NULL, 1, &column, 1) == REWIRE_STATUS_REQUEST);
    column.group = 9;
    CHECK(rewire_batch_extend(batch, NULL, 2, &column, 1) == REWIRE_STATUS_ARGUMENT);
    CHECK(strstr(rewire_message(), "`group`"));
    column = COLUMNS[7];
    column.values.values = NULL;
    CHECK(rewire_batch_extend(batch, NULL, 2, &column, 1) == REWIRE_STATUS_ARGUMENT);
    column.values.type = 3;
    CHECK(rewire_batch_extend(batch, NULL, 2, &column, 1) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_ranker_tasks(NULL) == 0 && !rewire_ranker_task(ranker, 2));
    rewire_options_free(NULL);
    rewire_ranker_free(NULL);
    rewire_batch_free(NULL);
    rewire_ranking_free(NULL);
}

/* A GPU that is not there is an error, and without options a model runs on what there is. */
static void check_other_devices(const char *package) {
    rewire_options *options = NULL;
    rewire_ranker *ranker = NULL;
    CHECK(rewire_options_new(&options) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel(options, REWIRE_KERNEL_WGPU) == REWIRE_STATUS_OK);
    CHECK(rewire_options_adapter(options, "no such adapter") == REWIRE_STATUS_OK);
    CHECK(rewire_options_pipelines(options, "/tmp") == REWIRE_STATUS_OK);
    CHECK(rewire_ranker_load(package, options, &ranker) == REWIRE_STATUS_MODEL && !ranker);
    CHECK(strstr(rewire_message(), "no such adapter"));
    CHECK(rewire_ranker_load(package, NULL, &ranker) == REWIRE_STATUS_OK);
    rewire_ranker_free(ranker);
    rewire_options_free(options);
}

/* A token of its own ends a ranking and leaves the ranker as it was. */
static void check_cancellation(const rewire_ranker *ranker, const rewire_batch *batch) {
    rewire_cancellation_token *token = NULL;
    rewire_ranking *ranking = NULL;
    rewire_scores scores;
    CHECK(rewire_cancellation_token_new(&token) == REWIRE_STATUS_OK);
    CHECK(rewire_rank_cancellable(ranker, batch, NULL, &ranking) == REWIRE_STATUS_ARGUMENT && !ranking);
    CHECK(rewire_rank_cancellable(ranker, batch, token, &ranking) == REWIRE_STATUS_OK);
    CHECK(rewire_ranking_scores(ranking, &scores) == REWIRE_STATUS_OK);
    check_scores(&scores);
    rewire_ranking_free(ranking);
    ranking = NULL;
    CHECK(rewire_cancellation_token_cancel(token) == REWIRE_STATUS_OK);
    CHECK(rewire_rank_cancellable(ranker, batch, token, &ranking) == REWIRE_STATUS_CANCELLED && !ranking);
    CHECK(strstr(rewire_message(), "cancelled"));
    CHECK(rewire_cancellation_token_cancel(NULL) == REWIRE_STATUS_ARGUMENT);
    rewire_cancellation_token_free(token);
    rewire_cancellation_token_free(NULL);
}

static uint8_t *whole(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    *count = (size_t)ftell(file);
    uint8_t *bytes = malloc(*count);
    CHECK(bytes && fseek(file, 0, SEEK_SET) == 0 && fread(bytes, 1, *count, file) == *count);
    fclose(file);
    return bytes;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && *rewire_version() && !*rewire_message());
    size_t size = 0;
    uint8_t *bytes = whole(arguments[1], &size);
    rewire_options *options = on_the_cpu();
    rewire_ranker *ranker = NULL;
    rewire_batch *batch = NULL;
    rewire_ranking *ranking = NULL;
    rewire_scores scores;
    CHECK(rewire_ranker_from_bytes(bytes, size, options, &ranker) == REWIRE_STATUS_OK);
    free(bytes);
    CHECK(rewire_ranker_tasks(ranker) == 2 && strcmp(rewire_ranker_task(ranker, 1), "is_like") == 0);
    const char *description = rewire_ranker_describe(ranker);
    CHECK(strstr(description, "ids 0 to") && strstr(description, "is_like") && strstr(description, "{\"user\":"));
    CHECK(!rewire_ranker_describe(NULL));
    CHECK(rewire_batch_new(ranker, &batch) == REWIRE_STATUS_OK);
    check_faults(ranker, options, batch, arguments[1]);
    check_other_devices(arguments[1]);
    CHECK(rewire_batch_extend(batch, NULL, 2, COLUMNS, COUNT(COLUMNS)) == REWIRE_STATUS_OK);
    CHECK(rewire_batch_clear(batch) == REWIRE_STATUS_OK);
    CHECK(rewire_batch_extend(batch, USERS, 2, COLUMNS, COUNT(COLUMNS)) == REWIRE_STATUS_OK);
    CHECK(rewire_rank(ranker, batch, &ranking) == REWIRE_STATUS_OK);
    CHECK(rewire_ranking_scores(ranking, &scores) == REWIRE_STATUS_OK);
    check_scores(&scores);
    check_cancellation(ranker, batch);

    const struct work work = {ranker, batch, scores.logits};
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) {
        CHECK(pthread_create(&threads[n], NULL, rank_often, (void *)&work) == 0);
    }
    for (int n = 0; n < THREADS; n++) {
        CHECK(pthread_join(threads[n], NULL) == 0);
    }
    rewire_options_free(options);
    rewire_ranker_free(ranker);
    rewire_batch_free(batch);
    check_scores(&scores);
    rewire_ranking_free(ranking);
    printf("%zu candidates of %zu requests\n", scores.candidates, scores.requests);
    return 0;
}
