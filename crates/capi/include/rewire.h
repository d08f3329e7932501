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
} rewire_status;

// Requests for a model.
typedef struct rewire_batch rewire_batch;

// What a model runs on, and how it is loaded.
typedef struct rewire_options rewire_options;

// A model that is ready to rank, for any number of threads.
typedef struct rewire_ranker rewire_ranker;

// The candidates of all requests, best first, as columns.
typedef struct rewire_ranking rewire_ranking;

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

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What went wrong in the last call of this thread that failed: UTF-8, empty if none did. It is good until the next call that fails.
const char *rewire_message(void);

// The version of the library.
const char *rewire_version(void);

// Options as they are without any: `REWIRE_KERNEL_AUTO`, no folder of compiled kernels.
//
// # Safety
// `out` is null or a place for the handle.
enum rewire_status rewire_options_new(struct rewire_options **out);

// What the model runs on: `REWIRE_KERNEL_AUTO`, `REWIRE_KERNEL_WGPU` or `REWIRE_KERNEL_CPU`.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile.
enum rewire_status rewire_options_kernel(struct rewire_options *options, uint32_t kernel);

// The GPU to use: a part of its name, driver, backend or PCI address, or `#` and its number.
//
// # Safety
// `options` are null or a handle that nobody else uses meanwhile, `adapter` is null or text that ends with a zero.
enum rewire_status rewire_options_adapter(struct rewire_options *options, const char *adapter);

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

// Loads a model: a package, or a folder with `config.json` and `model.safetensors`. `options` may be null.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REWIRE_H */
