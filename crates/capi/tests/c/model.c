/* Runs a model on tensors by name: model PACKAGE. */
#include "rewire.h"
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, rewire_message());                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { ROWS = 2 };

int main(int argc, char **argv) {
    CHECK(argc == 2);
    rewire_model *model = NULL;
    CHECK(rewire_model_open(argv[1], NULL, &model) == REWIRE_STATUS_OK);
    CHECK(rewire_model_inputs(model) == 1);
    rewire_tensor input;
    CHECK(rewire_model_input(model, 0, &input) == REWIRE_STATUS_OK);
    CHECK(input.element == REWIRE_F32 && input.rank == 2 && input.shape[0] == -1 && input.data == NULL);

    int64_t width = input.shape[1], shape[] = {ROWS, width};
    float *values = malloc((size_t)(ROWS * width) * sizeof *values);
    for (int64_t n = 0; n < ROWS * width; n++)
        values[n] = (float)n / 8;
    input.shape = shape;
    input.data = values;
    input.bytes = (size_t)(ROWS * width) * sizeof *values;
    rewire_results *results = NULL;
    CHECK(rewire_model_run(model, &input, 1, &results) == REWIRE_STATUS_OK);
    rewire_tensor output;
    CHECK(rewire_results_count(results) == 1 && rewire_results_tensor(results, 0, &output) == REWIRE_STATUS_OK);
    CHECK(output.element == REWIRE_F32 && output.rank == 2 && output.shape[0] == ROWS);
    const float *y = output.data;
    for (int64_t n = 0; n < ROWS * output.shape[1]; n++)
        printf("%.5f\n", y[n]);
    rewire_results_free(results);

    /* What does not fit is a status with a message. */
    input.bytes--;
    CHECK(rewire_model_run(model, &input, 1, &results) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_model_run(model, NULL, 0, &results) == REWIRE_STATUS_RUN);
    CHECK(rewire_results_tensor(NULL, 0, &output) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_model_open("/nowhere", NULL, &model) == REWIRE_STATUS_MODEL);
    free(values);
    rewire_model_free(model);

    /* An ONNX model of three floats. */
    float given[] = {-1, 0, 1};
    CHECK(rewire_model_open(getenv("ONNX_MODEL"), NULL, &model) == REWIRE_STATUS_OK);
    CHECK(rewire_model_input(model, 0, &input) == REWIRE_STATUS_OK && input.rank == 1 && input.shape[0] == 3);
    input.data = given;
    input.bytes = sizeof given;
    CHECK(rewire_model_run(model, &input, 1, &results) == REWIRE_STATUS_OK);
    CHECK(rewire_results_tensor(results, 0, &output) == REWIRE_STATUS_OK && output.rank == 1 && output.shape[0] == 3);
    y = output.data;
    CHECK(y[0] < -0.09f && y[0] > -0.11f && y[1] == 0 && y[2] == 1);
    rewire_results_free(results);
    rewire_model_free(model);
    return 0;
}
