/* Ranks a table of two users through Arrow's C data interface, a slice of a larger one: arrow PACKAGE. */
#include "rewire.h"
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

enum { COLUMNS = 12, EVENTS = 5, OFFERS = 4 };

/* A row before those that are meant. */
static const int32_t AGES[] = {0, 2, 3}, COUNTRIES[] = {9, 2, 0}, EVENT_ENDS[] = {0, 2, 7, 7}, USER_ENDS[] = {0, 0, 2, 4};
static const int64_t OFFER_ENDS[] = {0, 1, 4, 5};
static const int64_t ITEMS[] = {-1, -1, 11, 25, 22, 26, 23}, GENRES[] = {0, 0, 4, 0, 3, 1, 0};
static const int64_t ACTIONS[] = {0, 0, 1, 0, 2, 3, 1}, WATCHED[] = {0, 0, 779, 1113, 208, 1175, 510};
static const int64_t TIMES[] = {0, 0, 1738000000, 1738000613, 1738001226, 1738001839, 1738002452};
static const uint32_t OFFERED[] = {7, 0, 23, 6, 24};
static const int32_t OFFERED_GENRES[] = {0, 3, 2, 1, 0};
static const int64_t NOW[] = {0, 1738040000, 1738040000, 1738040000, 1738040000};
static const double PRICES[] = {1.5, 2.5, 3.5};

struct column {
    const char *name, *format;
    const void *first, *second;
    /* Of lists: the format and the number of their values. */
    const char *values;
    int64_t count;
};

static const struct column TABLE[COLUMNS] = {
    {"user", "u", USER_ENDS, "u0u1", NULL, 0},
    {"price", "g", PRICES, NULL, NULL, 0},
    {"age_bucket", "i", AGES, NULL, NULL, 0},
    {"country", "i", COUNTRIES, NULL, NULL, 0},
    {"history.item_id", "+l", EVENT_ENDS, ITEMS, "l", 7},
    {"history.genre", "+l", EVENT_ENDS, GENRES, "l", 7},
    {"history.action", "+l", EVENT_ENDS, ACTIONS, "l", 7},
    {"history.watchtime", "+l", EVENT_ENDS, WATCHED, "l", 7},
    {"history.timestamp", "+l", EVENT_ENDS, TIMES, "l", 7},
    {"candidates.item_id", "+L", OFFER_ENDS, OFFERED, "I", 5},
    {"candidates.genre", "+L", OFFER_ENDS, OFFERED_GENRES, "i", 5},
    {"candidates.timestamp", "+L", OFFER_ENDS, NOW, "l", 5},
};
static const int64_t BEST[OFFERS] = {23, 6, 0, 24};

static int released;

static void release_schema(struct ArrowSchema *schema) {
    schema->release = NULL;
    released++;
}

static void release_array(struct ArrowArray *array) {
    array->release = NULL;
    released++;
}

struct table {
    struct ArrowSchema schema, columns[COLUMNS], items[COLUMNS], *children[COLUMNS], *item[COLUMNS];
    struct ArrowArray array, arrays[COLUMNS], values[COLUMNS], *array_children[COLUMNS], *value[COLUMNS];
    const void *none[1], *buffers[COLUMNS][3], *value_buffers[COLUMNS][2];
};

static void fill(struct table *table) {
    memset(table, 0, sizeof *table);
    for (int n = 0; n < COLUMNS; n++) {
        const struct column *column = &TABLE[n];
        const int lists = column->values != NULL;
        table->children[n] = &table->columns[n];
        table->array_children[n] = &table->arrays[n];
        table->item[n] = &table->items[n];
        table->value[n] = &table->values[n];
        table->columns[n] = (struct ArrowSchema){.format = column->format, .name = column->name, .n_children = lists,
                                                 .children = &table->item[n], .release = release_schema};
        table->items[n] = (struct ArrowSchema){.format = column->values, .name = "item", .release = release_schema};
        table->buffers[n][1] = column->first;
        table->buffers[n][2] = column->second;
        table->arrays[n] = (struct ArrowArray){.length = 3, .n_buffers = lists ? 2 : 3, .n_children = lists,
                                               .buffers = table->buffers[n], .children = &table->value[n],
                                               .release = release_array};
        table->value_buffers[n][1] = column->second;
        table->values[n] = (struct ArrowArray){.length = column->count, .n_buffers = 2,
                                               .buffers = table->value_buffers[n], .release = release_array};
    }
    table->schema = (struct ArrowSchema){.format = "+s", .name = "", .n_children = COLUMNS,
                                         .children = table->children, .release = release_schema};
    table->array = (struct ArrowArray){.length = 2, .offset = 1, .n_buffers = 1, .n_children = COLUMNS,
                                       .buffers = table->none, .children = table->array_children,
                                       .release = release_array};
}

static void check_faults(rewire_batch *batch, struct table *table) {
    const uint8_t second = 5;
    table->arrays[4].null_count = -1;
    table->buffers[4][0] = &second;
    CHECK(rewire_batch_extend_arrow(batch, &table->schema, &table->array) == REWIRE_STATUS_ARGUMENT);
    CHECK(strstr(rewire_message(), "`history.item_id`: expected no nulls"));
    fill(table);
    table->items[5].format = "g";
    CHECK(rewire_batch_extend_arrow(batch, &table->schema, &table->array) == REWIRE_STATUS_ARGUMENT);
    CHECK(strstr(rewire_message(), "not the Arrow format `g`"));
    fill(table);
    table->array.length = 3;
    CHECK(rewire_batch_extend_arrow(batch, &table->schema, &table->array) == REWIRE_STATUS_ARGUMENT);
    fill(table);
    table->columns[6].name = "history.none";
    CHECK(rewire_batch_extend_arrow(batch, &table->schema, &table->array) == REWIRE_STATUS_REQUEST);
    CHECK(strstr(rewire_message(), "`history.action` is missing"));
    fill(table);
    table->array.release = NULL;
    CHECK(rewire_batch_extend_arrow(batch, &table->schema, &table->array) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_batch_extend_arrow(batch, NULL, &table->array) == REWIRE_STATUS_ARGUMENT);
    fill(table);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    rewire_options *options = NULL;
    rewire_ranker *ranker = NULL;
    rewire_batch *batch = NULL;
    rewire_ranking *ranking = NULL;
    rewire_scores scores;
    static struct table table;
    fill(&table);
    CHECK(rewire_options_new(&options) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel(options, REWIRE_KERNEL_CPU) == REWIRE_STATUS_OK);
    CHECK(rewire_ranker_load(arguments[1], options, &ranker) == REWIRE_STATUS_OK);
    rewire_options_free(options);
    CHECK(rewire_batch_new(ranker, &batch) == REWIRE_STATUS_OK);
    check_faults(batch, &table);
    CHECK(rewire_batch_extend_arrow(batch, &table.schema, &table.array) == REWIRE_STATUS_OK);
    CHECK(rewire_rank(ranker, batch, &ranking) == REWIRE_STATUS_OK);
    CHECK(rewire_ranking_scores(ranking, &scores) == REWIRE_STATUS_OK);
    CHECK(scores.requests == 2 && scores.candidates == OFFERS);
    CHECK(memcmp(scores.items, BEST, sizeof BEST) == 0);

    struct ArrowSchema schema;
    struct ArrowArray array;
    CHECK(rewire_ranking_export(ranking, NULL, &array) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_ranking_export(ranking, &schema, &array) == REWIRE_STATUS_OK);
    CHECK(strcmp(schema.format, "+s") == 0 && schema.n_children == 4 && array.n_children == 4 && array.length == 2);
    CHECK(strcmp(schema.children[3]->children[0]->format, "+w:2") == 0);
    const struct ArrowArray *items = array.children[0], *logits = array.children[3]->children[0]->children[0];
    CHECK(items->buffers[1] == scores.offsets && items->children[0]->buffers[1] == scores.items);
    CHECK(logits->length == 2 * OFFERS && logits->buffers[1] == scores.logits);
    /* A child that is moved out outlives all else. */
    struct ArrowArray moved = *array.children[0];
    array.children[0]->release = NULL;
    rewire_ranking_free(ranking);
    rewire_batch_free(batch);
    rewire_ranker_free(ranker);
    array.release(&array);
    schema.release(&schema);
    CHECK(!array.release && !schema.release && released == 0);
    CHECK(memcmp(moved.children[0]->buffers[1], BEST, sizeof BEST) == 0);
    moved.release(&moved);
    printf("%d rows\n", 2);
    return 0;
}
