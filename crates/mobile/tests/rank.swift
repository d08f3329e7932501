// Ranks users with every call of the library: rank PACKAGE USERS DECODER.
import Foundation

let cpu = Options(kernel: .cpu, mapping: .never)
let logits: [Float] = [-0.033730656, 0.480002, -0.21502596, 0.41798425, -0.5061746, -0.045830734, -0.5783202, -0.19326858]

let now: Int64 = 1_738_040_000
let u0 = Request(
    user: "u0",
    contextual: ["age_bucket": 2, "country": 2],
    history: [
        "item_id": [11, 25, 22, 26, 23],
        "genre": [4, 0, 3, 1, 0],
        "action": [1, 0, 2, 3, 1],
        "watchtime": [779, 1113, 208, 1175, 510],
        "timestamp": [1_738_000_000, 1_738_000_613, 1_738_001_226, 1_738_001_839, 1_738_002_452],
    ],
    candidates: ["item_id": [0, 23, 6], "genre": [3, 2, 1], "timestamp": [now, now, now]]
)
let u1 = Request(
    user: "u1",
    contextual: ["age_bucket": 3, "country": 0],
    history: u0.history.mapValues { _ in [] },
    candidates: ["item_id": [24], "genre": [0], "timestamp": [now]]
)

func check(_ condition: Bool, _ what: @autoclosure () -> Any = "", line: Int = #line) {
    if !condition { fatalError("line \(line): \(what())") }
}

func failure(line: Int = #line, _ call: () throws -> Any) -> RewireError {
    do {
        let value = try call()
        fatalError("line \(line): expected an error, got \(value)")
    } catch let error as RewireError {
        return error
    } catch {
        fatalError("line \(line): \(error)")
    }
}

func checkRanking(_ ranking: Ranking) {
    check(ranking.users == ["u0", "u1"] && ranking.offsets == [0, 3, 4], ranking)
    check(ranking.items == [23, 6, 0, 24] && ranking.positions == [1, 2, 0, 0], ranking)
    check(ranking.logits.count == logits.count && zip(ranking.logits, logits).allSatisfy { abs($0 - $1) < 1e-5 }, ranking)
    check(abs(ranking.scores[0] - 0.49156813) < 1e-6 && ranking.droppedEvents == [0, 0], ranking)
}

func checkFaults(_ ranker: Ranker, _ package: Data) {
    if case .Model(let code, let reason) = failure({ try Ranker.load(path: "/nowhere", options: cpu) }) {
        check(code == "rank.read" && reason.contains("/nowhere"), code)
    } else {
        check(false)
    }
    guard case .Model = failure({ try Ranker.fromBytes(bytes: Data("rewire".utf8), options: cpu) }) else { return check(false) }
    let absent = Options(kernel: .wgpu, adapter: "no such adapter", pipelines: "/tmp", mapping: .large)
    guard case .Model = failure({ try Ranker.fromBytes(bytes: package, options: absent) }) else { return check(false) }
    let ruled = Options(kernel: .cpu, mapping: .never, kernelFor: [KernelRule(pattern: "nowhere*", kernel: .cpu)])
    guard case .Model = failure({ try Ranker.fromBytes(bytes: package, options: ruled) }) else { return check(false) }
    let missing = Request(user: "u0", contextual: u0.contextual, candidates: u0.candidates)
    if case .Request(let code, let reason) = failure({ try ranker.rank(requests: [u1, missing]) }) {
        check(code == "rank.request" && reason.contains("user `u0`: `history."), reason)
    } else {
        check(false)
    }
    guard case .Request("request.text", _) = failure({ try ranker.rankJson(lines: "{}") }) else { return check(false) }
}

func checkCancellation(_ ranker: Ranker, _ users: String) throws {
    let token = CancellationToken()
    checkRanking(try ranker.rank(requests: [u0, u1], token: token))
    token.cancel()
    check(token.isCancelled() && failure { try ranker.rank(requests: [u0, u1], token: token) } == .Cancelled)
    // Of many runs, from another thread.
    let later = CancellationToken()
    let many = String(repeating: users, count: 8000)
    Thread.detachNewThread {
        Thread.sleep(forTimeInterval: 0.1)
        later.cancel()
    }
    check(failure { try ranker.rankJson(lines: many, token: later) } == .Cancelled)
    checkRanking(try ranker.rank(requests: [u0, u1]))
}

final class Listener: TokenListener, @unchecked Sendable {
    var heard: [UInt32] = []

    func onToken(prompt: UInt32, tokens: [UInt32]) -> Bool {
        heard.append(prompt)
        return prompt != 0
    }
}

// Items and tokens of a decoder, their progress, and what ends them.
func checkDecoder(_ folder: String) throws {
    let decoder = try Decoder.load(path: folder, options: cpu)
    check(decoder.vocabSize() == 400 && decoder.device() == "cpu")
    let items: [[UInt32]] = [[319, 360, 366], [7, 21], [319, 338, 370]]
    let found = try decoder.generate(prompts: [[87, 173, 158]], items: items, numBeams: 2)[0]
    check(found.count == 2 && found[0].score > found[1].score, found)
    check(found.allSatisfy { one in one.items.allSatisfy { items[Int($0)] == one.tokens } }, found)
    let prompts: [[UInt32]] = [[3, 1, 7], [9]]
    let drawn = try decoder.generate(prompts: prompts, maxNewTokens: 3)
    let listener = Listener()
    let cut = try decoder.generate(prompts: prompts, maxNewTokens: 3, onToken: listener)
    check(cut == [[], drawn[1]] && listener.heard.count == 4, cut)
    let token = CancellationToken()
    token.cancel()
    check(failure { try decoder.generate(prompts: prompts, token: token) } == .Cancelled)
    guard case .Request("generate.prompt", _) = failure({ try decoder.generate(prompts: [[]]) }) else { return check(false) }
}

let (path, users) = (CommandLine.arguments[1], CommandLine.arguments[2])
let package = try Data(contentsOf: URL(fileURLWithPath: path))
let lines = try String(contentsOfFile: users, encoding: .utf8)
let ranker = try Ranker.load(path: path, options: cpu)
check(ranker.describe().contains("{\"user\":"), ranker.describe())
check(ranker.tasks() == ["is_click", "is_like"] && ranker.device() == "cpu")
check(ranker.schema().contextual == ["age_bucket", "country"], ranker.schema())

let ranking = try ranker.rank(requests: [u0, u1])
checkRanking(ranking)
let two = lines.split(separator: "\n").prefix(2).joined(separator: "\n\n")
check(try ranker.rankJson(lines: two) == ranking)
check(try ranker.rank(requests: []).offsets == [0] && ranker.rankJson(lines: "").users.isEmpty)
check(try Ranker.fromBytes(bytes: package, options: cpu).rank(requests: [u0, u1]) == ranking)
checkRanking(try Ranker.load(path: path).rank(requests: [u0, u1]))

checkFaults(ranker, package)
DispatchQueue.concurrentPerform(iterations: 16) { _ in
    check((try? ranker.rank(requests: [u0, u1])) == ranking)
}
try checkCancellation(ranker, lines)
try checkDecoder(CommandLine.arguments[3])
ranker.trim()
check(try ranker.rank(requests: [u0, u1]) == ranking)
print("\(ranking.items.count) candidates of \(ranking.users.count) requests")
