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


// A hardware GPU where there is one, and the CPU otherwise.
#define REWIRE_KERNEL_AUTO 0

// A GPU.
#define REWIRE_KERNEL_WGPU 1

// The CPU.
#define REWIRE_KERNEL_CPU 2

// Files of 4 MiB and more are mapped into memory. Replace them by renaming others over them.
#define REWIRE_MAPPING_LARGE 0

// No file is mapped: a model takes the memory of all its files and does not depend on them.
#define REWIRE_MAPPING_NEVER 1

// A feature of users, a value a request.
#define REWIRE_CONTEXTUAL 0

// A feature of past events, a list a request, oldest first.
#define REWIRE_HISTORY 1

// A feature of candidates, a list a request.
#define REWIRE_CANDIDATES 2

// Integers of 32 bits.
#define REWIRE_INT32 0

// Integers of 64 bits.
#define REWIRE_INT64 1

// Unsigned integers of 32 bits.
#define REWIRE_UINT32 2

// Booleans, a byte each: 0 or 1.
#define REWIRE_BOOL 0

// Unsigned integers of 8 bits.
#define REWIRE_U8 1

// Integers of 8 bits.
#define REWIRE_I8 2

// Integers of 16 bits.
#define REWIRE_I16 3

// Integers of 32 bits.
#define REWIRE_I32 4

// Integers of 64 bits.
#define REWIRE_I64 5

// Floats of 16 bits.
#define REWIRE_F16 6

// bfloat16: floats with the exponent of 32 bits and 7 bits of fraction.
#define REWIRE_BF16 7

// Floats of 32 bits.
#define REWIRE_F32 8

// Floats of 64 bits, computed in 32.
#define REWIRE_F64 9

// Unsigned integers of 16 bits.
#define REWIRE_U16 10

// Unsigned integers of 32 bits.
#define REWIRE_U32 11

// Unsigned integers of 64 bits.
#define REWIRE_U64 12

// What became of a call.
typedef enum rewire_status {
  // It is done.
  REWIRE_STATUS_OK = 0,
  // An argument is null, or none of the values that it may have.
  REWIRE_STATUS_ARGUMENT = 1,
  // The model cannot be read, or there is no device as asked.
  REWIRE_STATUS_MODEL = 2,
  // Requests do not fit the model.
  REWIRE_STATUS_REQUEST = 3,
  // A run failed.
  REWIRE_STATUS_RUN = 4,
  // A fault of the library's own. The handles of the call are good for nothing but to be freed.
  REWIRE_STATUS_FAULT = 5,
  // The call's token was cancelled.
  REWIRE_STATUS_CANCELLED = 6,
} rewire_status;

// Requests for a model.
typedef struct rewire_batch rewire_batch;

// Stops rankings from another thread.
typedef struct rewire_cancellation_token rewire_cancellation_token;

// An evaluation, batch by batch.
typedef struct rewire_evaluation rewire_evaluation;

// Evaluates an imported model: the losses and metrics of its configuration. Any number of threads begin evaluations with it.
typedef struct rewire_evaluator rewire_evaluator;

// A model with the states of its runs. Threads that share one wait for each other.
typedef struct rewire_model rewire_model;

// What a model runs on, and how it is loaded.
typedef struct rewire_options rewire_options;

// An imported model that is ready to predict, for any number of threads.
typedef struct rewire_predictor rewire_predictor;

// A model that is ready to rank, for any number of threads.
typedef struct rewire_ranker rewire_ranker;

// The candidates of all requests, best first, as columns.
typedef struct rewire_ranking rewire_ranking;

// The tensors that a run gave.
typedef struct rewire_results rewire_results;

// A physical device of the app's own Vulkan instance.
typedef struct rewire_vulkan_adapter rewire_vulkan_adapter;

// Integers in a row.
typedef struct rewire_integers {
  // `REWIRE_INT32`, `REWIRE_INT64` or `REWIRE_UINT32`.
  uint32_t type;
  // The first of them.
  const void *values;
  // How many there are.
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
  // One more than requests; not read for features of users.
  struct rewire_integers offsets;
} rewire_column;

// The columns of a ranking, which has their memory.
typedef struct rewire_scores {
  // Number of requests.
  uintptr_t requests;
  // Number of candidates of all requests.
  uintptr_t candidates;
  // Logits of a candidate.
  uintptr_t tasks;
  // One more than requests: the candidates of a request go from its offset to the next one.
  const int64_t *offsets;
  // By candidate, the value of its first feature.
  const int64_t *items;
  // By candidate, its position in the request.
  const int64_t *positions;
  // By candidate, the probability of the first task.
  const double *scores;
  // By candidate, the logits of all tasks.
  const float *logits;
} rewire_scores;

// A metric or a loss.
typedef struct rewire_value {
  // Its name, as the reference has it.
  const char *name;
  // NaN where it is not defined.
  double value;
} rewire_value;

// Metrics and losses in the order of the configuration, as long as the evaluation is there and is not asked again.
typedef struct rewire_values {
  // The metrics.
  const struct rewire_value *metrics;
  // How many there are.
  uintptr_t metric_count;
  // The means of the losses over batches, weighted by the number of their labels.
  const struct rewire_value *losses;
  // How many there are.
  uintptr_t loss_count;
  // Number of rows.
  uint64_t rows;
} rewire_values;

// A tensor: `rank` extents, and elements in row-major order, of a type such as `REWIRE_F32`. Of an input of a model, `data` is null and an extent that a
// run tells is -1.
typedef struct rewire_tensor {
  // UTF-8 that ends with a zero.
  const char *name;
  // The type of elements.
  uint32_t element;
  // The number of extents.
  uintptr_t rank;
  // The extents.
  const int64_t *shape;
  // The elements.
  const void *data;
  // Bytes of the elements.
  uintptr_t bytes;
} rewire_tensor;

// The app's own Vulkan instance. It stays the app's, and open for as long as what is made with it is there.
typedef struct rewire_vulkan_instance {
  // `VkInstance`.
  void *instance;
  // `vkGetInstanceProcAddr` of the loader, as a `PFN_vkVoidFunction`.
  void (*get_instance_proc_addr)(void);
  // `apiVersion` that it was created with: that of the device or later, up to 1.3.
  uint32_t api_version;
  // Extensions that it was created with. `VK_KHR_get_physical_device_properties2` has to be among them.
  const char *const *extensions;
  // How many there are.
  uintptr_t extension_count;
} rewire_vulkan_instance;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in the last call of this thread that failed: UTF-8, empty if none did. It is good until the next call that fails.
const char *rewire_message(void);

// The version of the library.
const char *rewire_version(void);

// Options as they are without any: `REWIRE_KERNEL_AUTO`, `REWIRE_MAPPING_LARGE`, no folder of compiled kernels.
//
// # Safety
// `out` is null or a place for the handle.
enum rewire_status rewire_options_new(struct rewire_options **out);

// What the model runs on: `REWIRE_KERNEL_AUTO`, `REWIRE_KERNEL_WGPU` or `REWIRE_KERNEL_CPU`.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile.
enum rewire_status rewire_options_kernel(struct rewire_options *options, uint32_t kernel);

// What runs the steps whose operator or module matches a pattern, in which `*` matches any text. Of several patterns that match a step, the last
// counts; loading fails where one matches none.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile, `pattern` is null or text that ends with a zero.
enum rewire_status rewire_options_kernel_for(struct rewire_options *options,
                                             const char *pattern,
                                             uint32_t kernel);

// The GPU to use: a part of its name, driver, backend or PCI address, or `#` and its number.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile, `adapter` is null or text that ends with a zero.
enum rewire_status rewire_options_adapter(struct rewire_options *options, const char *adapter);

// Which files of the model are mapped into memory: `REWIRE_MAPPING_LARGE` or `REWIRE_MAPPING_NEVER`.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile.
enum rewire_status rewire_options_mapping(struct rewire_options *options, uint32_t mapping);

// A folder in which compiled kernels are kept for later starts. The driver trusts what it reads there: it should be writable for the user
// alone.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile, `folder` is null or text that ends with a zero.
enum rewire_status rewire_options_pipelines(struct rewire_options *options,
                                            const char *folder);

// Frees options. Rankers that were loaded with them stay.
//
// # Safety
// `options` are null, or a handle that is not used any more.
void rewire_options_free(struct rewire_options *options);

// Loads a model: a package, or, where the library was not built for packages alone, a folder with `config.json` and `model.safetensors`.
// `options` may be null.
//
// # Safety
// `path` is text that ends with a zero, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_ranker_load(const char *path,
                                      const struct rewire_options *options,
                                      struct rewire_ranker **out);

// Loads a package from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` are `count` bytes, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_ranker_from_bytes(const uint8_t *bytes,
                                            uintptr_t count,
                                            const struct rewire_options *options,
                                            struct rewire_ranker **out);

// Number of tasks, logits of a candidate; 0 for null.
//
// # Safety
// `ranker` is null or a handle.
uintptr_t rewire_ranker_tasks(const struct rewire_ranker *ranker);

// The name of a task, as long as the ranker is there; null where there is none.
//
// # Safety
// `ranker` is null or a handle.
const char *rewire_ranker_task(const struct rewire_ranker *ranker, uintptr_t task);

// What the model reads and gives, for people: features of requests with their ranges, tasks, tensors, and an example request as a line of
// JSON. UTF-8, as long as the ranker is there; null for null.
//
// # Safety
// `ranker` is null or a handle.
const char *rewire_ranker_describe(const struct rewire_ranker *ranker);

// Frees a ranker. Rankings and batches of it stay.
//
// # Safety
// `ranker` is null, or a handle that is not used any more.
void rewire_ranker_free(struct rewire_ranker *ranker);

// No requests yet, for this model.
//
// # Safety
// `ranker` is null or a handle, `out` a place for the handle.
enum rewire_status rewire_batch_new(const struct rewire_ranker *ranker, struct rewire_batch **out);

// Adds requests as columns, whose values are copied. Columns that the model does not read are left alone.
//
// `users` are names, a request each, or null: users are then named by their position among those that are added. Where columns are not
// good nothing is added; where the values of a request are not good, it ends what is added.
//
// # Safety
// `batch` is null or a handle that nobody else uses meanwhile; `users` are null or `requests` texts that end with a zero; `columns` are
// `count` columns, whose names, values and offsets are there.
enum rewire_status rewire_batch_extend(struct rewire_batch *batch,
                                       const char *const *users,
                                       uintptr_t requests,
                                       const struct rewire_column *columns,
                                       uintptr_t count);

// Forgets all requests.
//
// # Safety
// `batch` is null or a handle that nobody else uses meanwhile.
enum rewire_status rewire_batch_clear(struct rewire_batch *batch);

// Frees a batch.
//
// # Safety
// `batch` is null, or a handle that is not used any more.
void rewire_batch_free(struct rewire_batch *batch);

// Ranks the candidates of each request. Scores do not depend on what else is ranked with them.
//
// # Safety
// `ranker` and `batch` are null or handles, `out` a place for the handle.
enum rewire_status rewire_rank(const struct rewire_ranker *ranker,
                               const struct rewire_batch *batch,
                               struct rewire_ranking **out);

// As `rewire_rank`, until `token` is cancelled: `REWIRE_STATUS_CANCELLED`, and nothing is ranked.
//
// # Safety
// `ranker`, `batch` and `token` are null or handles, `out` a place for the handle.
enum rewire_status rewire_rank_cancellable(const struct rewire_ranker *ranker,
                                           const struct rewire_batch *batch,
                                           const struct rewire_cancellation_token *token,
                                           struct rewire_ranking **out);

// The columns of a ranking, as long as it is there.
//
// # Safety
// `ranking` is null or a handle, `out` a place for the columns.
enum rewire_status rewire_ranking_scores(const struct rewire_ranking *ranking, struct rewire_scores *out);

// Frees a ranking.
//
// # Safety
// `ranking` is null, or a handle that is not used any more.
void rewire_ranking_free(struct rewire_ranking *ranking);

// A token that is not cancelled.
//
// # Safety
// `out` is null or a place for the handle.
enum rewire_status rewire_cancellation_token_new(struct rewire_cancellation_token **out);

// Ends rankings that were given the token, with `REWIRE_STATUS_CANCELLED` and before the next of the runs that a batch takes. It stays
// cancelled. Any thread calls it.
//
// # Safety
// `token` is null or a handle.
enum rewire_status rewire_cancellation_token_cancel(const struct rewire_cancellation_token *token);

// Frees a token.
//
// # Safety
// `token` is null, or a handle that is not used any more, by rankings under way neither.
void rewire_cancellation_token_free(struct rewire_cancellation_token *token);

// Adds requests from a table: a struct array, a row a request. Its columns are `user` (text or integers; rows are named by their
// position without it), features of users by their names, and lists `history.NAME` and `candidates.NAME`, or lists `NAME` in structs `history` and
// `candidates`, of integers of 32 or 64 bits. Nothing may be null in what the model reads. The lists are read where they are; the table stays
// the caller's.
//
// # Safety
// `batch` is null or a handle that nobody else uses meanwhile; `schema` and `array` are null or as Arrow's C data interface has them, not
// released.
enum rewire_status rewire_batch_extend_arrow(struct rewire_batch *batch,
                                             const struct ArrowSchema *schema,
                                             const struct ArrowArray *array);

// Hands a ranking out as a table, without a copy: a struct array, a row a request, of the large lists `items`, `positions`, `scores` and `logits`, best
// first; a candidate's logits are a list of fixed size. Who takes it calls `release` of both; it outlives the ranking.
//
// # Safety
// `ranking` is null or a handle; `schema` and `array` are places for structures, which are overwritten.
enum rewire_status rewire_ranking_export(const struct rewire_ranking *ranking,
                                         struct ArrowSchema *schema,
                                         struct ArrowArray *array);

// Loads an imported model: a package, or, where the library was not built for packages alone, a folder with `config.json` and
// `model.safetensors`. `options` may be null.
//
// # Safety
// `path` is text that ends with a zero, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_predictor_load(const char *path,
                                         const struct rewire_options *options,
                                         struct rewire_predictor **out);

// Loads a package of an imported model from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` are `count` bytes, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_predictor_from_bytes(const uint8_t *bytes,
                                               uintptr_t count,
                                               const struct rewire_options *options,
                                               struct rewire_predictor **out);

// What the model reads and gives, for people: columns with their ranges, columns of predictions, tensors, and an example row as a line
// of JSON. UTF-8, as long as the predictor is there; null for null.
//
// # Safety
// `predictor` is null or a handle.
const char *rewire_predictor_describe(const struct rewire_predictor *predictor);

// Predicts the rows of a table. Predictions do not depend on what else is predicted with them.
//
// The table is a struct array with a column a feature, by its full name: integers or floats of any width, text that is split as the
// configuration says, lists, lists of lists, or maps from ids to weights. Other columns are not read. Columns are read where they are; the
// table stays the caller's.
//
// The predictions are a struct array with the columns that the reference writes: floats of 32 bits, or large lists of them where there are several
// classes or a vector. They have a row a row of the table, or a row a candidate. The column `index`, if it is not null, has the row of the table that
// each is of, as integers of 64 bits. Who takes them calls `release` of both structures; they outlive the predictor.
//
// # Safety
// `predictor` is null or a handle; `schema` and `array` are null or as Arrow's C data interface has them, not released; `index` is null or text that
// ends with a zero; `out_schema` and `out_array` are places for structures, which are overwritten.
enum rewire_status rewire_predict_arrow(const struct rewire_predictor *predictor,
                                        const struct ArrowSchema *schema,
                                        const struct ArrowArray *array,
                                        const char *index,
                                        struct ArrowSchema *out_schema,
                                        struct ArrowArray *out_array);

// Frees a predictor. Predictions of it stay.
//
// # Safety
// `predictor` is null, or a handle that is not used any more.
void rewire_predictor_free(struct rewire_predictor *predictor);

// Loads a package, or a folder with `config.json` and `model.safetensors`, to evaluate it. `options` may be null. Libraries for packages alone lack it.
//
// # Safety
// `path` is text that ends with a zero, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_evaluator_load(const char *path,
                                         const struct rewire_options *options,
                                         struct rewire_evaluator **out);

// Rows of a batch: the `eval_batch_size` of the configuration, or else its `batch_size`; 0 for null.
//
// # Safety
// `evaluator` is null or a handle.
uintptr_t rewire_evaluator_batch_size(const struct rewire_evaluator *evaluator);

// Frees an evaluator. Evaluations of it stay.
//
// # Safety
// `evaluator` is null, or a handle that is not used any more.
void rewire_evaluator_free(struct rewire_evaluator *evaluator);

// Begins an evaluation.
//
// # Safety
// `evaluator` is null or a handle, `out` a place for the handle.
enum rewire_status rewire_evaluation_new(const struct rewire_evaluator *evaluator, struct rewire_evaluation **out);

// Adds a batch: a table as `rewire_predict_arrow` reads it, with labels and groups. Models that compare users with sampled items also read a table
// with one row of them; it is null for others. The tables stay the caller's.
//
// # Safety
// `evaluation` is null or a handle that nobody else uses meanwhile; the structures are null or as Arrow's C data interface has them, not released.
enum rewire_status rewire_evaluation_add_arrow(struct rewire_evaluation *evaluation,
                                               const struct ArrowSchema *schema,
                                               const struct ArrowArray *array,
                                               const struct ArrowSchema *negatives_schema,
                                               const struct ArrowArray *negatives_array);

// Losses and metrics of all batches.
//
// # Safety
// `evaluation` is null or a handle that nobody else uses meanwhile, `out` a place for the values.
enum rewire_status rewire_evaluation_values(struct rewire_evaluation *evaluation, struct rewire_values *out);

// Frees an evaluation.
//
// # Safety
// `evaluation` is null, or a handle that is not used any more.
void rewire_evaluation_free(struct rewire_evaluation *evaluation);

// Opens a model: a package, or, where the library was not built for packages alone, a model folder or an archive of `torch.export.save`, whose name
// ends in `.pt2`. `options` may be null.
//
// # Safety
// `path` is text that ends with a zero, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_model_open(const char *path,
                                     const struct rewire_options *options,
                                     struct rewire_model **out);

// Opens a package from memory. Its bytes are copied. `options` may be null.
//
// # Safety
// `bytes` are `count` bytes, `options` are null or a handle, `out` is a place for the handle.
enum rewire_status rewire_model_from_bytes(const uint8_t *bytes,
                                           uintptr_t count,
                                           const struct rewire_options *options,
                                           struct rewire_model **out);

// How many tensors a run of the model takes; 0 for null.
//
// # Safety
// `model` is null or a handle.
uintptr_t rewire_model_inputs(const struct rewire_model *model);

// An input of the model, by its place in the call. Its name and shape stay as long as the model.
//
// # Safety
// `model` is null or a handle, `out` is null or a place for a tensor.
enum rewire_status rewire_model_input(const struct rewire_model *model, uintptr_t place, struct rewire_tensor *out);

// Runs the model on tensors by name, in any order. What they hold is copied. Buffers that the model changes keep that for the next run.
//
// # Safety
// `model` is null or a handle, `tensors` are `count` tensors, whose names end with a zero and whose shapes and data are there, `out` is a place for the
// handle.
enum rewire_status rewire_model_run(const struct rewire_model *model,
                                    const struct rewire_tensor *tensors,
                                    uintptr_t count,
                                    struct rewire_results **out);

// How many tensors there are; 0 for null.
//
// # Safety
// `results` are null or a handle.
uintptr_t rewire_results_count(const struct rewire_results *results);

// A tensor of the results, in the order of names: what the model gives, and buffers and inputs that it changed. It is there as long as the
// results.
//
// # Safety
// `results` are null or a handle, `out` is null or a place for a tensor.
enum rewire_status rewire_results_tensor(const struct rewire_results *results,
                                         uintptr_t place,
                                         struct rewire_tensor *out);

// Frees results.
//
// # Safety
// `results` are null, or a handle that is not used any more.
void rewire_results_free(struct rewire_results *results);

// Frees a model. Results of it stay.
//
// # Safety
// `model` is null, or a handle that is not used any more.
void rewire_model_free(struct rewire_model *model);

// Looks at a physical device of an instance of the app's. On Windows, Linux, Android and FreeBSD.
//
// `REWIRE_STATUS_MODEL` where the instance lacks the extension or the version, or the device does not do: it has to conform to Vulkan, and
// its first family of queues has to draw.
//
// # Safety
// `instance` is null or as it says, `physical_device` is a `VkPhysicalDevice` of it, `out` a place for the handle.
enum rewire_status rewire_vulkan_adapter_new(const struct rewire_vulkan_instance *instance,
                                             void *physical_device,
                                             struct rewire_vulkan_adapter **out);

// What the app has to create its device with: a `const VkDeviceCreateInfo *` with features (`pNext`, `pEnabledFeatures`) and extensions, and
// without queues. The app copies it and adds its queues, and what else it needs. It is good as long as the adapter is there; null for null.
//
// # Safety
// `adapter` is null or a handle.
const void *rewire_vulkan_adapter_device_info(const struct rewire_vulkan_adapter *adapter);

// Lets models that are loaded with these options run on a device of the app's, with `REWIRE_KERNEL_AUTO` and `REWIRE_KERNEL_WGPU`.
//
// Device and queue stay the app's. It destroys them once all options and rankers that have them are freed; the adapter may be freed before.
// Nobody else submits to the queue while a ranker is loaded, ranks or is freed. A device that is lost is not opened anew.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile, `adapter` is null or a handle. `device` is a `VkDevice` of it that was created with
// all that `rewire_vulkan_adapter_device_info` tells, and with the queue.
enum rewire_status rewire_options_vulkan_device(struct rewire_options *options,
                                                const struct rewire_vulkan_adapter *adapter,
                                                void *device,
                                                uint32_t queue_family,
                                                uint32_t queue);

// Frees an adapter. Devices stay.
//
// # Safety
// `adapter` is null, or a handle that is not used any more.
void rewire_vulkan_adapter_free(struct rewire_vulkan_adapter *adapter);

// Lets models that are loaded with these options run on a device of the app's, with `REWIRE_KERNEL_AUTO` and `REWIRE_KERNEL_WGPU`. On macOS and
// iOS. Not run on such machines yet.
//
// Device and queue are retained for as long as options and rankers have them. A device that is lost is not opened anew.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile, `device` is null or an `id<MTLDevice>`, `queue` is null or an `id<MTLCommandQueue>`
// of it.
enum rewire_status rewire_options_metal_device(struct rewire_options *options,
                                               void *device,
                                               void *queue);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REWIRE_H */
