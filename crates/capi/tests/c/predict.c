/* Predicts and evaluates a table of three users, a slice of a larger one, through Arrow's C data interface: predict PACKAGE. */
#include "rewire.h"
#include <math.h>
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

enum { COLUMNS = 5, ROWS = 3 };

/* A row before those that are meant. */
static const int16_t USERS[] = {9, 1, 2, 3};
static const double PRICES[] = {9, 0.5, 1.5, 2.5};
static const int16_t LABELS[] = {0, 1, 0, 1};
/* Ids in text; the last row has none. */
static const int32_t TAG_ENDS[] = {0, 0, 3, 4, 4};
static const char TAGS[] = "1|23";
static const uint8_t WITH_TAGS = 7;
/* Ids with weights. */
static const int32_t CLICK_ENDS[] = {0, 0, 2, 2, 3};
static const int64_t CLICKS[] = {1, 2, 3};
static const float WEIGHTS[] = {0.5f, 2, 1};

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
    struct ArrowSchema schema, columns[COLUMNS], entries, parts[2], *children[COLUMNS], *entry[1], *part[2];
    struct ArrowArray array, arrays[COLUMNS], pairs, halves[2], *array_children[COLUMNS], *pair[1], *half[2];
    const void *none[1], *buffers[COLUMNS][3], *half_buffers[2][2];
};

static void column(struct table *table, int n, const char *name, const char *format, const void *first,
                   const void *second) {
    table->children[n] = &table->columns[n];
    table->array_children[n] = &table->arrays[n];
    table->buffers[n][1] = first;
    table->buffers[n][2] = second;
    table->columns[n] = (struct ArrowSchema){.format = format, .name = name, .release = release_schema};
    table->arrays[n] = (struct ArrowArray){.length = ROWS + 1, .n_buffers = second ? 3 : 2,
                                           .buffers = table->buffers[n], .release = release_array};
}

static void fill(struct table *table) {
    memset(table, 0, sizeof *table);
    column(table, 0, "user", "s", USERS, NULL);
    column(table, 1, "price", "g", PRICES, NULL);
    column(table, 2, "tags", "u", TAG_ENDS, TAGS);
    table->buffers[2][0] = &WITH_TAGS;
    table->arrays[2].null_count = 1;
    column(table, 3, "clicks", "+m", CLICK_ENDS, NULL);
    column(table, 4, "label", "s", LABELS, NULL);
    const char *formats[] = {"l", "f"};
    const void *values[] = {CLICKS, WEIGHTS};
    for (int n = 0; n < 2; n++) {
        table->part[n] = &table->parts[n];
        table->half[n] = &table->halves[n];
        table->half_buffers[n][1] = values[n];
        table->parts[n] = (struct ArrowSchema){.format = formats[n], .name = "", .release = release_schema};
        table->halves[n] = (struct ArrowArray){.length = 3, .n_buffers = 2, .buffers = table->half_buffers[n],
                                               .release = release_array};
    }
    table->entry[0] = &table->entries;
    table->pair[0] = &table->pairs;
    table->entries = (struct ArrowSchema){.format = "+s", .name = "entries", .n_children = 2, .children = table->part,
                                          .release = release_schema};
    table->pairs = (struct ArrowArray){.length = 3, .n_buffers = 1, .n_children = 2, .buffers = table->none,
                                       .children = table->half, .release = release_array};
    table->columns[3].n_children = table->arrays[3].n_children = 1;
    table->columns[3].children = table->entry;
    table->arrays[3].children = table->pair;
    table->schema = (struct ArrowSchema){.format = "+s", .name = "", .n_children = COLUMNS,
                                         .children = table->children, .release = release_schema};
    table->array = (struct ArrowArray){.length = ROWS, .offset = 1, .n_buffers = 1, .n_children = COLUMNS,
                                       .buffers = table->none, .children = table->array_children,
                                       .release = release_array};
}

static rewire_status predict(const rewire_predictor *predictor, struct table *table, struct ArrowSchema *schema,
                             struct ArrowArray *array) {
    return rewire_predict_arrow(predictor, &table->schema, &table->array, "row", schema, array);
}

static void check_faults(const rewire_predictor *predictor, struct table *table) {
    struct ArrowSchema schema;
    struct ArrowArray array;
    table->columns[0].name = "other";
    CHECK(predict(predictor, table, &schema, &array) == REWIRE_STATUS_REQUEST);
    CHECK(strstr(rewire_message(), "there is no column `user`"));
    fill(table);
    table->columns[1].format = "tdD";
    CHECK(predict(predictor, table, &schema, &array) == REWIRE_STATUS_ARGUMENT);
    CHECK(strstr(rewire_message(), "`price`: expected integers, floats, text, lists or maps"));
    fill(table);
    /* Without the slice the first row has an id beyond its table. */
    table->array.offset = 0;
    CHECK(predict(predictor, table, &schema, &array) == REWIRE_STATUS_REQUEST);
    CHECK(strstr(rewire_message(), "column `user`, row 0: expected an id from 0 to below 4"));
    fill(table);
    CHECK(predict(NULL, table, &schema, &array) == REWIRE_STATUS_ARGUMENT);
    CHECK(predict(predictor, table, &schema, NULL) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_predict_arrow(predictor, NULL, NULL, NULL, &schema, &array) == REWIRE_STATUS_ARGUMENT);
}

static void print(const rewire_value *values, size_t count) {
    for (size_t n = 0; n < count; n++)
        printf("%s %.9f\n", values[n].name, values[n].value);
}

static void evaluate(const char *package, const rewire_options *options, struct table *table) {
    rewire_evaluator *evaluator = NULL;
    rewire_evaluation *evaluation = NULL;
    rewire_values values;
    CHECK(rewire_evaluator_load("/nowhere", options, &evaluator) == REWIRE_STATUS_MODEL);
    CHECK(rewire_evaluator_load(package, options, &evaluator) == REWIRE_STATUS_OK);
    CHECK(rewire_evaluator_batch_size(evaluator) == 8 && rewire_evaluator_batch_size(NULL) == 0);
    CHECK(rewire_evaluation_new(evaluator, &evaluation) == REWIRE_STATUS_OK);
    rewire_evaluator_free(evaluator);
    CHECK(rewire_evaluation_add_arrow(evaluation, NULL, NULL, NULL, NULL) == REWIRE_STATUS_ARGUMENT);
    table->columns[4].name = "other";
    CHECK(rewire_evaluation_add_arrow(evaluation, &table->schema, &table->array, NULL, NULL) == REWIRE_STATUS_REQUEST);
    CHECK(strstr(rewire_message(), "there is no column `label`"));
    fill(table);
    CHECK(rewire_evaluation_add_arrow(evaluation, &table->schema, &table->array, NULL, NULL) == REWIRE_STATUS_OK);
    CHECK(rewire_evaluation_values(evaluation, NULL) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_evaluation_values(evaluation, &values) == REWIRE_STATUS_OK && values.rows == ROWS);
    print(values.metrics, values.metric_count);
    print(values.losses, values.loss_count);
    rewire_evaluation_free(evaluation);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    rewire_options *options = NULL;
    rewire_predictor *predictor = NULL;
    CHECK(rewire_options_new(&options) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel(options, REWIRE_KERNEL_CPU) == REWIRE_STATUS_OK);
    CHECK(rewire_predictor_load("/nowhere", options, &predictor) == REWIRE_STATUS_MODEL);
    CHECK(rewire_predictor_load(arguments[1], options, &predictor) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel_for(options, "mlp*", 9) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_kernel_for(options, NULL, REWIRE_KERNEL_CPU) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_options_kernel_for(options, "*", REWIRE_KERNEL_CPU) == REWIRE_STATUS_OK);
    static struct table table;
    fill(&table);
    evaluate(arguments[1], options, &table);
    CHECK(rewire_options_kernel_for(options, "nowhere*", REWIRE_KERNEL_CPU) == REWIRE_STATUS_OK);
    rewire_predictor *other = NULL;
    CHECK(rewire_predictor_load(arguments[1], options, &other) == REWIRE_STATUS_MODEL);
    CHECK(strstr(rewire_message(), "nowhere*"));
    rewire_options_free(options);
    CHECK(strstr(rewire_predictor_describe(predictor), "ids 0 to 3") && !rewire_predictor_describe(NULL));

    check_faults(predictor, &table);
    struct ArrowSchema schema;
    struct ArrowArray array;
    CHECK(predict(predictor, &table, &schema, &array) == REWIRE_STATUS_OK);
    rewire_predictor_free(predictor);
    CHECK(released == 0);
    CHECK(array.length == ROWS && schema.n_children == 3);
    CHECK(!strcmp(schema.children[0]->name, "logits") && !strcmp(schema.children[0]->format, "f"));
    CHECK(!strcmp(schema.children[1]->name, "probs") && !strcmp(schema.children[2]->name, "row"));
    const float *logits = array.children[0]->buffers[1], *probs = array.children[1]->buffers[1];
    const int64_t *rows = array.children[2]->buffers[1];
    for (int n = 0; n < ROWS; n++) {
        /* Every parameter is 1: a row is the sum of its ids, weights and price, four columns a table. */
        const float tags[] = {2, 1, 0}, clicks[] = {2.5f, 0, 1};
        const float expected = 4 * (1 + tags[n] + clicks[n]) + (float)PRICES[n + 1];
        CHECK(fabsf(logits[n] - expected) < 1e-5f);
        CHECK(fabsf(probs[n] - 1 / (1 + expf(-logits[n]))) < 1e-6f && rows[n] == n);
    }
    schema.release(&schema);
    array.release(&array);
    printf("%d rows\n", ROWS);
    return 0;
}
