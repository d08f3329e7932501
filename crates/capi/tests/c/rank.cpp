// Ranks one user with the library, handles in smart pointers: rank PACKAGE.
#include "rewire.h"
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

template <auto Free> struct Freed {
    template <typename T> void operator()(T *handle) const { Free(handle); }
};
using Ranker = std::unique_ptr<rewire_ranker, Freed<rewire_ranker_free>>;
using Options = std::unique_ptr<rewire_options, Freed<rewire_options_free>>;
using Batch = std::unique_ptr<rewire_batch, Freed<rewire_batch_free>>;
using Ranking = std::unique_ptr<rewire_ranking, Freed<rewire_ranking_free>>;

template <typename Handle, typename Function, typename... Arguments> Handle made(Function make, Arguments... arguments) {
    typename Handle::pointer handle = nullptr;
    if (make(arguments..., &handle) != REWIRE_STATUS_OK) {
        throw std::runtime_error(rewire_message());
    }
    return Handle(handle);
}

static rewire_integers integers(const std::vector<int64_t> &values) {
    return {REWIRE_INT64, values.data(), values.size()};
}

static std::vector<int64_t> best(const rewire_ranker *ranker) {
    const std::vector<int64_t> none, one{1}, no_events{0, 0}, two{0, 2}, items{24, 3}, genres{0, 1}, times(2, 1738040000);
    const std::vector<rewire_column> columns{
        {REWIRE_CONTEXTUAL, "age_bucket", integers(one), {}},
        {REWIRE_CONTEXTUAL, "country", integers(one), {}},
        {REWIRE_HISTORY, "item_id", integers(none), integers(no_events)},
        {REWIRE_HISTORY, "genre", integers(none), integers(no_events)},
        {REWIRE_HISTORY, "action", integers(none), integers(no_events)},
        {REWIRE_HISTORY, "watchtime", integers(none), integers(no_events)},
        {REWIRE_HISTORY, "timestamp", integers(none), integers(no_events)},
        {REWIRE_CANDIDATES, "item_id", integers(items), integers(two)},
        {REWIRE_CANDIDATES, "genre", integers(genres), integers(two)},
        {REWIRE_CANDIDATES, "timestamp", integers(times), integers(two)},
    };
    const Batch batch = made<Batch>(rewire_batch_new, ranker);
    if (rewire_batch_extend(batch.get(), nullptr, 1, columns.data(), columns.size()) != REWIRE_STATUS_OK) {
        throw std::runtime_error(rewire_message());
    }
    const Ranking ranking = made<Ranking>(rewire_rank, ranker, static_cast<const rewire_batch *>(batch.get()));
    rewire_scores scores{};
    rewire_ranking_scores(ranking.get(), &scores);
    return {scores.items, scores.items + scores.candidates};
}

int main(int, char **arguments) {
    const Options options = made<Options>(rewire_options_new);
    rewire_options_kernel(options.get(), REWIRE_KERNEL_CPU);
    const rewire_options *given = options.get();
    const Ranker ranker = made<Ranker>(rewire_ranker_load, arguments[1], given);
    const std::vector<int64_t> expected = best(ranker.get());
    std::vector<std::thread> threads;
    int same = 0;
    std::vector<std::vector<int64_t>> found(3);
    for (auto &items : found) {
        threads.emplace_back([&items, &ranker] { items = best(ranker.get()); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (const auto &items : found) {
        same += items == expected;
    }
    try {
        made<Ranker>(rewire_ranker_load, "/nowhere", given);
    } catch (const std::runtime_error &error) {
        std::printf("%d of %zu threads, %zu items, %s\n", same, found.size(), expected.size(), error.what());
    }
    return same == 3 && expected.size() == 2 ? 0 : 1;
}
