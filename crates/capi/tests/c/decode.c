/* Generates items and tokens: decode FOLDER. */
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

typedef struct {
    size_t calls, ended;
} heard;

static int32_t hear(void *context, size_t prompt, const uint32_t *tokens, size_t count) {
    heard *heard = context;
    heard->calls++;
    return count > 0 && tokens[0] < 400 && prompt != heard->ended;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    rewire_options *on_cpu = NULL;
    CHECK(rewire_options_new(&on_cpu) == REWIRE_STATUS_OK);
    CHECK(rewire_options_kernel(on_cpu, REWIRE_KERNEL_CPU) == REWIRE_STATUS_OK);
    rewire_decoder *decoder = NULL;
    CHECK(rewire_decoder_load(argv[1], on_cpu, &decoder) == REWIRE_STATUS_OK);
    CHECK(rewire_decoder_vocab_size(decoder) == 400 && rewire_decoder_vocab_size(NULL) == 0);

    const uint32_t prompted[] = {87, 173, 158, 9}, tokens[] = {319, 360, 366, 7, 21, 319, 338, 370};
    const size_t prompt_offsets[] = {0, 3, 4}, item_offsets[] = {0, 3, 5, 8};
    const rewire_token_lists prompts = {2, prompt_offsets, prompted}, items = {3, item_offsets, tokens};
    rewire_generate_options options = rewire_generate_options_default();
    options.num_beams = 2;
    rewire_generation *generation = NULL;
    CHECK(rewire_generate(decoder, &prompts, &items, &options, NULL, NULL, NULL, &generation) == REWIRE_STATUS_OK);
    rewire_generated found;
    CHECK(rewire_generation_columns(generation, &found) == REWIRE_STATUS_OK);
    CHECK(found.prompts == 2 && found.count == 4 && found.offsets[1] == 2 && found.offsets[2] == 4);
    for (size_t n = 0; n < found.count; n++) {
        CHECK(found.item_offsets[n + 1] == n + 1);
        printf("%lld %.5f", (long long)found.items[n], found.scores[n]);
        for (size_t k = found.token_offsets[n]; k < found.token_offsets[n + 1]; k++)
            printf(" %u", found.tokens[k]);
        printf("\n");
    }
    rewire_generation_free(generation);

    /* One of two prompts ends early. */
    const rewire_on_token listener = hear;
    heard heard = {0, 0};
    options.max_new_tokens = 3;
    CHECK(rewire_generate(decoder, &prompts, NULL, &options, listener, &heard, NULL, &generation) == REWIRE_STATUS_OK);
    CHECK(rewire_generation_columns(generation, &found) == REWIRE_STATUS_OK);
    CHECK(heard.calls == 4 && found.offsets[1] == 0 && found.offsets[2] == 1 && found.token_offsets[1] == 3);
    rewire_generation_free(generation);

    /* What does not fit is a status with a message. */
    const size_t descending[] = {0, 3, 1};
    const rewire_token_lists wrong = {2, descending, prompted}, empty = {2, (const size_t[]){0, 0, 1}, prompted};
    CHECK(rewire_generate(decoder, &wrong, NULL, NULL, NULL, NULL, NULL, &generation) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_generate(decoder, &empty, NULL, NULL, NULL, NULL, NULL, &generation) == REWIRE_STATUS_REQUEST);
    CHECK(rewire_generate(NULL, &prompts, NULL, NULL, NULL, NULL, NULL, &generation) == REWIRE_STATUS_ARGUMENT);
    CHECK(rewire_decoder_load("/nowhere", on_cpu, &decoder) == REWIRE_STATUS_MODEL);
    rewire_cancellation_token *token = NULL;
    CHECK(rewire_cancellation_token_new(&token) == REWIRE_STATUS_OK);
    CHECK(rewire_cancellation_token_cancel(token) == REWIRE_STATUS_OK);
    CHECK(rewire_generate(decoder, &prompts, &items, NULL, NULL, NULL, token, &generation) == REWIRE_STATUS_CANCELLED);
    rewire_cancellation_token_free(token);
    rewire_options_free(on_cpu);
    rewire_decoder_free(decoder);
    return 0;
}
