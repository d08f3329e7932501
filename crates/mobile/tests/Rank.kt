/* Ranks users with every call of the library: RankKt PACKAGE USERS DECODER. */
import rewire.CancellationToken
import rewire.Decoder
import rewire.Kernel
import rewire.KernelRule
import rewire.Mapping
import rewire.Options
import rewire.Ranker
import rewire.Ranking
import rewire.Request
import rewire.RewireException
import rewire.TokenListener
import java.io.File
import java.util.concurrent.Callable
import java.util.concurrent.Executors
import kotlin.math.abs

val CPU = Options(Kernel.CPU, mapping = Mapping.NEVER)
val LOGITS = listOf(-0.033730656f, 0.480002f, -0.21502596f, 0.41798425f, -0.5061746f, -0.045830734f, -0.5783202f, -0.19326858f)

val NOW = 1738040000L
val U0 = Request(
    user = "u0",
    contextual = mapOf("age_bucket" to 2L, "country" to 2L),
    history = mapOf(
        "item_id" to listOf(11L, 25L, 22L, 26L, 23L),
        "genre" to listOf(4L, 0L, 3L, 1L, 0L),
        "action" to listOf(1L, 0L, 2L, 3L, 1L),
        "watchtime" to listOf(779L, 1113L, 208L, 1175L, 510L),
        "timestamp" to listOf(1738000000L, 1738000613L, 1738001226L, 1738001839L, 1738002452L),
    ),
    candidates = mapOf("item_id" to listOf(0L, 23L, 6L), "genre" to listOf(3L, 2L, 1L), "timestamp" to List(3) { NOW }),
)
val U1 = Request(
    user = "u1",
    contextual = mapOf("age_bucket" to 3L, "country" to 0L),
    history = U0.history.mapValues { listOf() },
    candidates = mapOf("item_id" to listOf(24L), "genre" to listOf(0L), "timestamp" to listOf(NOW)),
)

inline fun <reified E : Throwable> fails(call: () -> Unit): E {
    val error = runCatching(call).exceptionOrNull()
    check(error is E) { "expected ${E::class}, got $error" }
    return error
}

fun checkRanking(ranking: Ranking) {
    check(ranking.users == listOf("u0", "u1") && ranking.offsets == listOf(0L, 3L, 4L)) { "$ranking" }
    check(ranking.items == listOf(23L, 6L, 0L, 24L) && ranking.positions == listOf(1L, 2L, 0L, 0L)) { "$ranking" }
    check(ranking.logits.zip(LOGITS).all { (logit, expected) -> abs(logit - expected) < 1e-5f }) { "$ranking" }
    check(ranking.logits.size == LOGITS.size && abs(ranking.scores[0] - 0.49156813) < 1e-6) { "$ranking" }
    check(ranking.droppedEvents == listOf(0L, 0L)) { "$ranking" }
}

fun checkFaults(ranker: Ranker) {
    val nowhere = fails<RewireException.Model> { Ranker.load("/nowhere", CPU) }
    check("/nowhere" in nowhere.reason && nowhere.code == "rank.read" && "/nowhere" in nowhere.message) { nowhere.message }
    check(fails<RewireException.Model> { Ranker.fromBytes("rewire".toByteArray(), CPU) }.code.startsWith("package."))
    val absent = Options(Kernel.WGPU, adapter = "no such adapter", pipelines = "/tmp", mapping = Mapping.LARGE)
    check("no such adapter" in fails<RewireException.Model> { Ranker.fromBytes(PACKAGE, absent) }.reason)
    val ruled = CPU.copy(kernelFor = listOf(KernelRule("nowhere*", Kernel.CPU)))
    check("nowhere*" in fails<RewireException.Model> { Ranker.fromBytes(PACKAGE, ruled) }.reason)
    val missing = U0.copy(history = U0.history - "action")
    val request = fails<RewireException.Request> { ranker.rank(listOf(U1, missing)) }
    check(request.code == "rank.request" && "user `u0`: `history.action` is missing" in request.reason) { request.message }
    check(fails<RewireException.Request> { ranker.rankJson("{}") }.code == "request.text")
}

fun checkCancellation(ranker: Ranker, users: String) {
    val token = CancellationToken()
    checkRanking(ranker.rank(listOf(U0, U1), token))
    token.cancel()
    check(token.isCancelled())
    fails<RewireException.Cancelled> { ranker.rank(listOf(U0, U1), token) }
    // Of many runs, from another thread.
    val later = CancellationToken()
    val many = users.repeat(8000)
    val ranking = Thread {
        Thread.sleep(100)
        later.cancel()
    }
    ranking.start()
    fails<RewireException.Cancelled> { ranker.rankJson(many, later) }
    ranking.join()
    checkRanking(ranker.rank(listOf(U0, U1)))
}

fun checkThreads(ranker: Ranker, expected: Ranking) {
    val threads = Executors.newFixedThreadPool(4)
    val work = List(16) { Callable { ranker.rank(listOf(U0, U1)) } }
    threads.invokeAll(work).forEach { check(it.get() == expected) }
    threads.shutdown()
}

lateinit var PACKAGE: ByteArray

/** Items and tokens of a decoder, their progress, and what ends them. */
fun checkDecoder(folder: String) {
    val decoder = Decoder.load(folder, CPU)
    check(decoder.vocabSize() == 400u && decoder.device() == "cpu")
    val items = listOf(listOf(319u, 360u, 366u), listOf(7u, 21u), listOf(319u, 338u, 370u))
    val found = decoder.generate(listOf(listOf(87u, 173u, 158u)), items, numBeams = 2u).single()
    check(found.size == 2 && found[0].score > found[1].score) { "$found" }
    check(found.all { one -> one.items.all { items[it.toInt()] == one.tokens } }) { "$found" }
    val prompts = listOf(listOf(3u, 1u, 7u), listOf(9u))
    val drawn = decoder.generate(prompts, maxNewTokens = 3u)
    val heard = mutableListOf<UInt>()
    val listener = object : TokenListener {
        override fun onToken(prompt: UInt, tokens: List<UInt>) = heard.add(prompt) && prompt != 0u
    }
    check(decoder.generate(prompts, maxNewTokens = 3u, onToken = listener) == listOf(listOf(), drawn[1]) && heard.size == 4)
    val token = CancellationToken()
    token.cancel()
    fails<RewireException.Cancelled> { decoder.generate(prompts, token = token) }
    check(fails<RewireException.Request> { decoder.generate(listOf(listOf())) }.code == "generate.prompt")
    decoder.close()
}

fun main(arguments: Array<String>) {
    val (path, users, folder) = arguments
    PACKAGE = File(path).readBytes()
    val lines = File(users).readText()
    val ranker = Ranker.load(path, CPU)
    check("{\"user\":" in ranker.describe()) { ranker.describe() }
    check(ranker.tasks() == listOf("is_click", "is_like") && ranker.device() == "cpu")
    val features = listOf("item_id", "genre")
    val schema = ranker.schema()
    check(schema.contextual == listOf("age_bucket", "country") && schema.candidates.take(2) == features) { "$schema" }
    check(schema.history.containsAll(U0.history.keys)) { "$schema" }

    val ranking = ranker.rank(listOf(U0, U1))
    checkRanking(ranking)
    check(ranker.rankJson(lines.lines().take(2).joinToString("\n\n")) == ranking)
    val all = ranker.rankJson(lines)
    check(all.users.size == lines.trim().lines().size && all.items.subList(0, 4) == ranking.items)
    check(ranker.rank(listOf()).offsets == listOf(0L) && ranker.rankJson("").users.isEmpty())
    Ranker.fromBytes(PACKAGE, CPU).use { check(it.rank(listOf(U0, U1)) == ranking) }
    Ranker.load(path).use { checkRanking(it.rank(listOf(U0, U1))) }

    checkFaults(ranker)
    checkThreads(ranker, ranking)
    checkCancellation(ranker, lines)
    checkDecoder(folder)
    ranker.trim()
    check(ranker.rank(listOf(U0, U1)) == ranking)
    ranker.close()
    fails<IllegalStateException> { ranker.tasks() }
    println("${ranking.items.size} candidates of ${ranking.users.size} requests")
}
