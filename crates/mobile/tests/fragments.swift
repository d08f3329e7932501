// Runs the fragments of docs/mobile.md, which replace the lines `// rank` and `// generate`: fragments PACKAGE.
import Foundation

// rank

// generate

let features = ["item_id", "genre", "action", "watchtime", "timestamp"]
let request = Request(
    user: "u0",
    contextual: ["age_bucket": 2, "country": 2],
    history: Dictionary(uniqueKeysWithValues: features.map { ($0, [1, 3]) }),
    candidates: ["item_id": [2, 1], "genre": [2, 1], "timestamp": [1_738_040_000, 1_738_040_000]]
)
let ranker = try Ranker.load(path: CommandLine.arguments[1])
let expected = try ranker.rank(requests: [request])
let ranked = try await rank(ranker, [request])
precondition(ranked == expected && drawn[0][0].tokens.count == 8)

// A cancelled task ends with an error.
let many = Task { try await rank(ranker, Array(repeating: request, count: 100_000)) }
try await Task.sleep(nanoseconds: 100_000_000)
many.cancel()
if case .success = await many.result { fatalError("it was not cancelled") }
