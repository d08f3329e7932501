/* Ranking with rewire. Written by cbindgen: see crates/capi. */

#ifndef REWIRE_H
#define REWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

/* Arrow's C data interface: https://arrow.apache.org/docs/format/CDataInterface.html */
struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};

#endif


// A hardware GPU if one exists, otherwise the CPU.
#define REWIRE_KERNEL_AUTO 0

// A GPU.
#define REWIRE_KERNEL_WGPU 1

// The CPU.
#define REWIRE_KERNEL_CPU 2

// Files of 4 MiB and more are memory-mapped. Replace them by renaming others over them.
#define REWIRE_MAPPING_LARGE 0

// No file is mapped: the model's files are read into memory, and the model does not depend on them.
#define REWIRE_MAPPING_NEVER 1

// A user feature, one value per request.
#define REWIRE_CONTEXTUAL 0

// A feature of past events, one list per request, oldest first.
#define REWIRE_HISTORY 1

// A feature of candidates, one list per request.
#define REWIRE_CANDIDATES 2

// Signed 32-bit integers.
#define REWIRE_INT32 0

// Signed 64-bit integers.
#define REWIRE_INT64 1

// Unsigned 32-bit integers.
#define REWIRE_UINT32 2

// Booleans, one byte each: 0 or 1.
#define REWIRE_BOOL 0

// Unsigned 8-bit integers.
#define REWIRE_U8 1

// Signed 8-bit integers.
#define REWIRE_I8 2

// Signed 16-bit integers.
#define REWIRE_I16 3

// Signed 32-bit integers.
#define REWIRE_I32 4

// Signed 64-bit integers.
#define REWIRE_I64 5

// 16-bit floats (f16).
#define REWIRE_F16 6

// bfloat16: 16-bit floats with the exponent of f32 and 7 bits of fraction.
#define REWIRE_BF16 7

// 32-bit floats (f32).
#define REWIRE_F32 8

// 64-bit floats (f64), computed in f32.
#define REWIRE_F64 9

// Unsigned 16-bit integers.
#define REWIRE_U16 10

// Unsigned 32-bit integers.
#define REWIRE_U32 11

// Unsigned 64-bit integers.
#define REWIRE_U64 12

// The result of a call.
typedef enum rewire_status {
  // Success.
  REWIRE_STATUS_OK = 0,
  // An argument is null or invalid.
  REWIRE_STATUS_ARGUMENT = 1,
  // The model cannot be read, or the requested device is not available.
  REWIRE_STATUS_MODEL = 2,
  // Requests do not fit the model.
  REWIRE_STATUS_REQUEST = 3,
  // A run failed.
  REWIRE_STATUS_RUN = 4,
  // An internal error of the library. The handles of the call may only be freed.
  REWIRE_STATUS_FAULT = 5,
  // The call's token was cancelled.
  REWIRE_STATUS_CANCELLED = 6,
} rewire_status;

// Requests for a model.
typedef struct rewire_batch rewire_batch;

// Stops rankings from another thread.
typedef struct rewire_cancellation_token rewire_cancellation_token;

// A language model, ready to generate. Threads that share a decoder wait for each other.
typedef struct rewire_decoder rewire_decoder;

// An evaluation, batch by batch.
typedef struct rewire_evaluation rewire_evaluation;

// Evaluates an imported model: the losses and metrics of its configuration. Any number of threads may start evaluations with
// it.
typedef struct rewire_evaluator rewire_evaluator;

// Generated sequences.
typedef struct rewire_generation rewire_generation;

// A model with its states. Threads that share one wait for each other.
typedef struct rewire_model rewire_model;

// Options for loading and running a model.
typedef struct rewire_options rewire_options;

// A loaded imported model, for any number of threads.
typedef struct rewire_predictor rewire_predictor;

// A loaded ranking model, for any number of threads.
typedef struct rewire_ranker rewire_ranker;

// The candidates of all requests, best first, as columns.
typedef struct rewire_ranking rewire_ranking;

// The results of a run.
typedef struct rewire_results rewire_results;

// A physical device of the app's own Vulkan instance.
typedef struct rewire_vulkan_adapter rewire_vulkan_adapter;

// An array of integers.
typedef struct rewire_integers {
  // `REWIRE_INT32`, `REWIRE_INT64` or `REWIRE_UINT32`.
  uint32_t type;
  // Pointer to the first value.
  const void *values;
  // Number of values.
  uintptr_t count;
} rewire_integers;

// A column of requests. The list of a request holds the values from its offset to the next one, as in Arrow.
typedef struct rewire_column {
  // `REWIRE_CONTEXTUAL`, `REWIRE_HISTORY` or `REWIRE_CANDIDATES`.
  uint32_t group;
  // The feature, as in the model's configuration.
  const char *name;
  // The values of all requests.
  struct rewire_integers values;
  // One offset more than requests; ignored for user features.
  struct rewire_integers offsets;
} rewire_column;

// The columns of a ranking, which owns their memory.
typedef struct rewire_scores {
  // Number of requests.
  uintptr_t requests;
  // Number of candidates of all requests.
  uintptr_t candidates;
  // Logits per candidate.
  uintptr_t tasks;
  // One more than requests: the candidates of a request range from its offset to the next one.
  const int64_t *offsets;
  // Per candidate, the value of its first feature.
  const int64_t *items;
  // Per candidate, its position in the request.
  const int64_t *positions;
  // Per candidate, the probability of the first task.
  const double *scores;
  // Per candidate, the logits of all tasks.
  const float *logits;
} rewire_scores;

// A metric or a loss.
typedef struct rewire_value {
  // The reference's name.
  const char *name;
  // NaN if undefined.
  double value;
} rewire_value;

// Metrics and losses in the order of the configuration. Valid until the evaluation is freed or queried again.
typedef struct rewire_values {
  // The metrics.
  const struct rewire_value *metrics;
  // Number of metrics.
  uintptr_t metric_count;
  // The means of the losses over batches, weighted by the number of their labels.
  const struct rewire_value *losses;
  // Number of losses.
  uintptr_t loss_count;
  // Number of rows.
  uint64_t rows;
} rewire_values;

// A tensor: `rank` extents, and elements in row-major order, of a type such as `REWIRE_F32`. For inputs of a model, `data` is null and
// extents that are only known in a run are -1.
typedef struct rewire_tensor {
  // A null-terminated UTF-8 string.
  const char *name;
  // The element type.
  uint32_t element;
  // The number of extents.
  uintptr_t rank;
  // The extents.
  const int64_t *shape;
  // The elements.
  const void *data;
  // Size of the elements in bytes.
  uintptr_t bytes;
} rewire_tensor;

// Options of a generation.
typedef struct rewire_generate_options {
  // Beam width of a search in items.
  uintptr_t num_beams;
  // Maximum number of new tokens per prompt, without items.
  uintptr_t max_new_tokens;
  // Logits are divided by it; 0 selects the most likely token.
  double temperature;
  // Sample only from this many most likely tokens; 0 for all.
  uintptr_t top_k;
  // Sample only from the smallest set of most likely tokens whose probabilities add up to it.
  double top_p;
  // Seed of the random numbers.
  uint64_t seed;
  // Tokens that end a sequence, in addition to those of the model's configuration.
  const uint32_t *stop;
  // Number of these tokens.
  uintptr_t stop_count;
} rewire_generate_options;

// Lists of tokens, concatenated: list `n` is `offsets[n]` to `offsets[n + 1]`.
typedef struct rewire_token_lists {
  // The number of lists.
  uintptr_t count;
  // Offsets in `tokens`, one more than lists.
  const uintptr_t *offsets;
  // The tokens of all lists.
  const uint32_t *tokens;
} rewire_token_lists;

// Receives the caller's context, the index of a prompt, and the `count` tokens of its best prefix. If it returns 0,
// the prompt ends without a result.
typedef int32_t (*rewire_on_token)(void *context, uintptr_t prompt, const uint32_t *tokens, uintptr_t count);

// The columns of a generation. The sequences of prompt `n`, best first, are `offsets[n]` to `offsets[n + 1]`.
typedef struct rewire_generated {
  // The number of prompts.
  uintptr_t prompts;
  // The number of sequences of all prompts.
  uintptr_t count;
  // Offsets of the sequences of each prompt, one more than prompts.
  const uintptr_t *offsets;
  // Per sequence, the sum of the log-probabilities of its tokens.
  const double *scores;
  // Offsets in `tokens`, one more than sequences.
  const uintptr_t *token_offsets;
  // The tokens of all sequences.
  const uint32_t *tokens;
  // Offsets in `items`, one more than sequences.
  const uintptr_t *item_offsets;
  // Indices of the given items with these tokens.
  const int64_t *items;
} rewire_generated;

// The app's own Vulkan instance. The app owns it and keeps it open as long as anything created with it exists.
typedef struct rewire_vulkan_instance {
  // `VkInstance`.
  void *instance;
  // `vkGetInstanceProcAddr` of the loader, as a `PFN_vkVoidFunction`.
  void (*get_instance_proc_addr)(void);
  // `apiVersion` that it was created with: that of the device or later, up to 1.3.
  uint32_t api_version;
  // Extensions that it was created with. They must include `VK_KHR_get_physical_device_properties2`.
  const char *const *extensions;
  // Number of extensions.
  uintptr_t extension_count;
} rewire_vulkan_instance;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The message of the last failed call of this thread: UTF-8, empty if none failed. Valid until the next failed call.
const char *rewire_message(void);

// The version of the library.
const char *rewire_version(void);

// Creates options with the defaults: `REWIRE_KERNEL_AUTO`, `REWIRE_MAPPING_LARGE`, no folder of compiled kernels.
//
// # Safety
// `out` is null or points to a variable for the handle.
enum rewire_status rewire_options_new(struct rewire_options **out);

// Sets the backend: `REWIRE_KERNEL_AUTO`, `REWIRE_KERNEL_WGPU` or `REWIRE_KERNEL_CPU`.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call.
enum rewire_status rewire_options_kernel(struct rewire_options *options, uint32_t kernel);

// Sets the backend of steps whose operator or module matches a pattern; `*` matches any text. If several patterns
// match a step, the last one applies. Loading fails if a pattern matches nothing.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call, `pattern` is null or a null-terminated string.
enum rewire_status rewire_options_kernel_for(struct rewire_options *options,
                                             const char *pattern,
                                             uint32_t kernel);

// Selects the GPU: a part of its name, driver, backend or PCI address, or `#` and its number.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call, `adapter` is null or a null-terminated string.
enum rewire_status rewire_options_adapter(struct rewire_options *options,
                                          const char *adapter);

// Sets which files of the model are memory-mapped: `REWIRE_MAPPING_LARGE` or `REWIRE_MAPPING_NEVER`.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call.
enum rewire_status rewire_options_mapping(struct rewire_options *options, uint32_t mapping);

// Sets a folder that caches compiled kernels for later starts. The driver trusts its content: only the user should be able to write to
// it.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call, `folder` is null or a null-terminated string.
enum rewire_status rewire_options_pipelines(struct rewire_options *options,
                                            const char *folder);

// Frees options. Rankers that were loaded with them stay valid.
//
// # Safety
// `options` is null, or a handle that is no longer used.
void rewire_options_free(struct rewire_options *options);

// Loads a model: a package or, unless the library was built only for packages, a folder with `config.json` and `model.safetensors`.
// `options` may be null.
//
// # Safety
// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_ranker_load(const char *path,
                                      const struct rewire_options *options,
                                      struct rewire_ranker **out);

// Loads a package from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_ranker_from_bytes(const uint8_t *bytes,
                                            uintptr_t count,
                                            const struct rewire_options *options,
                                            struct rewire_ranker **out);

// Number of tasks, which is the number of logits per candidate; 0 for null.
//
// # Safety
// `ranker` is null or a handle.
uintptr_t rewire_ranker_tasks(const struct rewire_ranker *ranker);

// The name of a task, valid as long as the ranker; null if the task does not exist.
//
// # Safety
// `ranker` is null or a handle.
const char *rewire_ranker_task(const struct rewire_ranker *ranker, uintptr_t task);

// A readable description of the model's inputs and outputs: features of requests with their ranges, tasks, tensors,
// and an example request as a line of JSON. UTF-8, valid as long as the ranker; null for null.
//
// # Safety
// `ranker` is null or a handle.
const char *rewire_ranker_describe(const struct rewire_ranker *ranker);

// Frees a ranker. Its rankings and batches stay valid.
//
// # Safety
// `ranker` is null, or a handle that is no longer used.
void rewire_ranker_free(struct rewire_ranker *ranker);

// Creates an empty batch for this model.
//
// # Safety
// `ranker` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_batch_new(const struct rewire_ranker *ranker, struct rewire_batch **out);

// Adds requests as columns, whose values are copied. Columns that the model does not read are ignored.
//
// `users` are names, one per request, or null: users are then named by their position in this call. Invalid columns add nothing. An
// invalid request stops at that request; the requests before it are added.
//
// # Safety
// `batch` is null or a handle that no other thread uses during the call; `users` is null or has `requests` null-terminated strings;
// `columns` has `count` columns with valid names, values and offsets.
enum rewire_status rewire_batch_extend(struct rewire_batch *batch,
                                       const char *const *users,
                                       uintptr_t requests,
                                       const struct rewire_column *columns,
                                       uintptr_t count);

// Removes all requests.
//
// # Safety
// `batch` is null or a handle that no other thread uses during the call.
enum rewire_status rewire_batch_clear(struct rewire_batch *batch);

// Frees a batch.
//
// # Safety
// `batch` is null, or a handle that is no longer used.
void rewire_batch_free(struct rewire_batch *batch);

// Ranks the candidates of each request. Scores do not depend on the other requests of the batch.
//
// # Safety
// `ranker` and `batch` are null or handles, `out` points to a variable for the handle.
enum rewire_status rewire_rank(const struct rewire_ranker *ranker,
                               const struct rewire_batch *batch,
                               struct rewire_ranking **out);

// `rewire_rank` with a token: if `token` is cancelled, it returns `REWIRE_STATUS_CANCELLED` and ranks nothing.
//
// # Safety
// `ranker`, `batch` and `token` are null or handles, `out` points to a variable for the handle.
enum rewire_status rewire_rank_cancellable(const struct rewire_ranker *ranker,
                                           const struct rewire_batch *batch,
                                           const struct rewire_cancellation_token *token,
                                           struct rewire_ranking **out);

// The columns of a ranking, valid as long as the ranking.
//
// # Safety
// `ranking` is null or a handle, `out` points to a variable for the columns.
enum rewire_status rewire_ranking_scores(const struct rewire_ranking *ranking, struct rewire_scores *out);

// Frees a ranking.
//
// # Safety
// `ranking` is null, or a handle that is no longer used.
void rewire_ranking_free(struct rewire_ranking *ranking);

// Creates a token.
//
// # Safety
// `out` is null or points to a variable for the handle.
enum rewire_status rewire_cancellation_token_new(struct rewire_cancellation_token **out);

// Ends rankings with this token before their next run, with `REWIRE_STATUS_CANCELLED`. The token stays cancelled. May be called from
// any thread.
//
// # Safety
// `token` is null or a handle.
enum rewire_status rewire_cancellation_token_cancel(const struct rewire_cancellation_token *token);

// Frees a token.
//
// # Safety
// `token` is null, or a handle that is no longer used, also not by running rankings.
void rewire_cancellation_token_free(struct rewire_cancellation_token *token);

// Adds requests from a table: a struct array, one row per request. Its columns are `user` (strings or integers; without it, rows are named
// by their position), user features by name, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs `history` and
// `candidates`, of 32-bit or 64-bit integers. Columns that the model reads must not contain nulls. The lists are read in place; the caller
// keeps the table.
//
// # Safety
// `batch` is null or a handle that no other thread uses during the call; `schema` and `array` are null or valid structures of Arrow's C
// data interface, not released.
enum rewire_status rewire_batch_extend_arrow(struct rewire_batch *batch,
                                             const struct ArrowSchema *schema,
                                             const struct ArrowArray *array);

// Exports a ranking as a table without a copy: a struct array, one row per request, of the large lists `items`, `positions`, `scores` and
// `logits`, best first; a candidate's logits are a fixed-size list. The caller releases both structures with `release`; they may outlive
// the ranking.
//
// # Safety
// `ranking` is null or a handle; `schema` and `array` point to structures, which are overwritten.
enum rewire_status rewire_ranking_export(const struct rewire_ranking *ranking,
                                         struct ArrowSchema *schema,
                                         struct ArrowArray *array);

// Loads an imported model: a package or, unless the library was built only for packages, a folder with `config.json` and
// `model.safetensors`. `options` may be null.
//
// # Safety
// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_predictor_load(const char *path,
                                         const struct rewire_options *options,
                                         struct rewire_predictor **out);

// Loads a package of an imported model from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_predictor_from_bytes(const uint8_t *bytes,
                                               uintptr_t count,
                                               const struct rewire_options *options,
                                               struct rewire_predictor **out);

// A readable description of the model's inputs and outputs: columns with their ranges, columns of predictions,
// tensors, and an example row as a line of JSON. UTF-8, valid as long as the predictor; null for null.
//
// # Safety
// `predictor` is null or a handle.
const char *rewire_predictor_describe(const struct rewire_predictor *predictor);

// Predicts the rows of a table. Predictions do not depend on the other rows.
//
// The table is a struct array with one column per feature, by its full name: integers or floats of any width, strings that are split as
// configured, lists, lists of lists, or maps from ids to weights. Other columns are ignored. Columns are read in place; the caller keeps
// the table.
//
// The predictions are a struct array with the columns that the reference writes: 32-bit floats, or large lists of them for several classes
// or a vector. They have one row per row of the table, or one per candidate. The column `index`, unless it is null, holds the table row of
// each prediction as a 64-bit integer. The caller releases both structures with `release`; they may outlive the predictor.
//
// # Safety
// `predictor` is null or a handle; `schema` and `array` are null or valid structures of Arrow's C data interface, not released; `index` is
// null or a null-terminated string; `out_schema` and `out_array` point to structures, which are overwritten.
enum rewire_status rewire_predict_arrow(const struct rewire_predictor *predictor,
                                        const struct ArrowSchema *schema,
                                        const struct ArrowArray *array,
                                        const char *index,
                                        struct ArrowSchema *out_schema,
                                        struct ArrowArray *out_array);

// Frees a predictor. Its predictions stay valid.
//
// # Safety
// `predictor` is null, or a handle that is no longer used.
void rewire_predictor_free(struct rewire_predictor *predictor);

// Loads a package, or a folder with `config.json` and `model.safetensors`, for evaluation. `options` may be null. Not available in
// libraries built only for packages.
//
// # Safety
// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_evaluator_load(const char *path,
                                         const struct rewire_options *options,
                                         struct rewire_evaluator **out);

// Batch size in rows: the `eval_batch_size` of the configuration, or else its `batch_size`; 0 for null.
//
// # Safety
// `evaluator` is null or a handle.
uintptr_t rewire_evaluator_batch_size(const struct rewire_evaluator *evaluator);

// Frees an evaluator. Its evaluations stay valid.
//
// # Safety
// `evaluator` is null, or a handle that is no longer used.
void rewire_evaluator_free(struct rewire_evaluator *evaluator);

// Starts an evaluation.
//
// # Safety
// `evaluator` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_evaluation_new(const struct rewire_evaluator *evaluator, struct rewire_evaluation **out);

// Evaluates a batch: a table as for `rewire_predict_arrow`, with labels and groups. Models with sampled negatives also read a table with
// one row of them; it is null for others. The caller keeps the tables.
//
// # Safety
// `evaluation` is null or a handle that no other thread uses during the call; the structures are null or valid for Arrow's C data
// interface, not released.
enum rewire_status rewire_evaluation_add_arrow(struct rewire_evaluation *evaluation,
                                               const struct ArrowSchema *schema,
                                               const struct ArrowArray *array,
                                               const struct ArrowSchema *negatives_schema,
                                               const struct ArrowArray *negatives_array);

// Losses and metrics of all batches.
//
// # Safety
// `evaluation` is null or a handle that no other thread uses during the call, `out` points to a variable for the values.
enum rewire_status rewire_evaluation_values(struct rewire_evaluation *evaluation,
                                            struct rewire_values *out);

// Frees an evaluation.
//
// # Safety
// `evaluation` is null, or a handle that is no longer used.
void rewire_evaluation_free(struct rewire_evaluation *evaluation);

// Opens a model: a package or, unless the library was built only for packages, a model folder, an archive of `torch.export.save` (.pt2)
// or an ONNX model (.onnx). `options` may be null.
//
// # Safety
// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_model_open(const char *path,
                                     const struct rewire_options *options,
                                     struct rewire_model **out);

// Opens a package from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_model_from_bytes(const uint8_t *bytes,
                                           uintptr_t count,
                                           const struct rewire_options *options,
                                           struct rewire_model **out);

// Number of inputs of the model; 0 for null.
//
// # Safety
// `model` is null or a handle.
uintptr_t rewire_model_inputs(const struct rewire_model *model);

// An input of the model, by position. Its name and shape are valid as long as the model.
//
// # Safety
// `model` is null or a handle, `out` is null or points to a tensor.
enum rewire_status rewire_model_input(const struct rewire_model *model, uintptr_t place, struct rewire_tensor *out);

// Runs the model on named tensors, in any order. Their data is copied. Buffers that the model changes keep their values for the next
// run.
//
// # Safety
// `model` is null or a handle, `tensors` has `count` tensors with null-terminated names and valid shapes and data, `out` points to a
// variable for the handle.
enum rewire_status rewire_model_run(const struct rewire_model *model,
                                    const struct rewire_tensor *tensors,
                                    uintptr_t count,
                                    struct rewire_results **out);

// Number of result tensors; 0 for null.
//
// # Safety
// `results` is null or a handle.
uintptr_t rewire_results_count(const struct rewire_results *results);

// A result tensor, in the order of names: outputs, and buffers and inputs that the model changed. Valid as long as the results.
//
// # Safety
// `results` is null or a handle, `out` is null or points to a tensor.
enum rewire_status rewire_results_tensor(const struct rewire_results *results,
                                         uintptr_t place,
                                         struct rewire_tensor *out);

// Frees results.
//
// # Safety
// `results` is null, or a handle that is no longer used.
void rewire_results_free(struct rewire_results *results);

// Frees a model. Its results stay valid.
//
// # Safety
// `model` is null, or a handle that is no longer used.
void rewire_model_free(struct rewire_model *model);

// Loads a package of a language model or, unless the library was built only for packages, a Hugging Face folder with
// `config.json` and `model.safetensors` or its index. `options` may be null.
//
// # Safety
// `path` is a null-terminated string, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_decoder_load(const char *path,
                                       const struct rewire_options *options,
                                       struct rewire_decoder **out);

// Loads a package from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` has `count` bytes, `options` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_decoder_from_bytes(const uint8_t *bytes,
                                             uintptr_t count,
                                             const struct rewire_options *options,
                                             struct rewire_decoder **out);

// Number of tokens of the vocabulary; 0 for null.
//
// # Safety
// `decoder` is null or a handle.
uintptr_t rewire_decoder_vocab_size(const struct rewire_decoder *decoder);

// 10 beams; 32 new tokens, always the most likely one.
struct rewire_generate_options rewire_generate_options_default(void);

// Generates sequences for each prompt. With `items` it finds items by beam search; if `items` is null, it samples
// tokens. `options` may be null. Prompts run together and do not affect each other's results. `on_token` may be null;
// otherwise the calling thread calls it with `context` after each token of a prompt. `token` may be null; if it is
// cancelled, the call returns `REWIRE_STATUS_CANCELLED` before its next run.
//
// # Safety
// `decoder` is null or a handle, `prompts` points to valid lists, `items` and `options` are null or valid, `on_token` takes `context` and does
// not unwind, `token` is null or a handle, `out` points to a variable for the handle.
enum rewire_status rewire_generate(const struct rewire_decoder *decoder,
                                   const struct rewire_token_lists *prompts,
                                   const struct rewire_token_lists *items,
                                   const struct rewire_generate_options *options,
                                   rewire_on_token on_token,
                                   void *context,
                                   const struct rewire_cancellation_token *token,
                                   struct rewire_generation **out);

// The columns of a generation, valid as long as the generation.
//
// # Safety
// `generation` is null or a handle, `out` points to a variable for the columns.
enum rewire_status rewire_generation_columns(const struct rewire_generation *generation, struct rewire_generated *out);

// Frees a generation.
//
// # Safety
// `generation` is null, or a handle that is no longer used.
void rewire_generation_free(struct rewire_generation *generation);

// Frees a decoder. Its generations stay valid.
//
// # Safety
// `decoder` is null, or a handle that is no longer used.
void rewire_decoder_free(struct rewire_decoder *decoder);

// Examines a physical device of the app's instance. For Windows, Linux, Android and FreeBSD.
//
// `REWIRE_STATUS_MODEL` if the instance lacks the extension or the version, or the device is not suitable: it must conform to Vulkan, and
// its first queue family must support graphics.
//
// # Safety
// `instance` is null or as described, `physical_device` is a `VkPhysicalDevice` of it, `out` points to a variable for the
// handle.
enum rewire_status rewire_vulkan_adapter_new(const struct rewire_vulkan_instance *instance,
                                             void *physical_device,
                                             struct rewire_vulkan_adapter **out);

// The requirements for creating the app's device: a `const VkDeviceCreateInfo *` with features (`pNext`, `pEnabledFeatures`) and
// extensions, and without queues. The app copies it and adds its queues and its own requirements. Valid as long as the adapter; null for
// null.
//
// # Safety
// `adapter` is null or a handle.
const void *rewire_vulkan_adapter_device_info(const struct rewire_vulkan_adapter *adapter);

// Runs models that are loaded with these options on the app's device, with `REWIRE_KERNEL_AUTO` and `REWIRE_KERNEL_WGPU`.
//
// The app owns the device and the queue. It destroys them after all options and rankers that use them are freed; the
// adapter may be freed earlier. Nothing else may submit to the queue while a ranker is loaded, ranks or is freed. A
// lost device is not reopened.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call, `adapter` is null or a handle. `device` is a `VkDevice` of it,
// created with all requirements of `rewire_vulkan_adapter_device_info` and with the queue.
enum rewire_status rewire_options_vulkan_device(struct rewire_options *options,
                                                const struct rewire_vulkan_adapter *adapter,
                                                void *device,
                                                uint32_t queue_family,
                                                uint32_t queue);

// Frees an adapter. Devices stay valid.
//
// # Safety
// `adapter` is null, or a handle that is no longer used.
void rewire_vulkan_adapter_free(struct rewire_vulkan_adapter *adapter);

// Runs models that are loaded with these options on the app's device, with `REWIRE_KERNEL_AUTO` and `REWIRE_KERNEL_WGPU`. For macOS and
// iOS. Not yet run on such machines.
//
// Options and rankers retain the device and the queue. A lost device is not reopened.
//
// # Safety
// `options` is null or a handle that no other thread uses during the call, `device` is null or an `id<MTLDevice>`, `queue` is null or an
// `id<MTLCommandQueue>` of it.
enum rewire_status rewire_options_metal_device(struct rewire_options *options,
                                               void *device,
                                               void *queue);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REWIRE_H */
