/* Runs the fragments of docs/mobile.md, which replace the lines `// rank` and `// generate`: FragmentsKt PACKAGE. */
import java.util.concurrent.Executors
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.suspendCancellableCoroutine
import rewire.*

val executor = Executors.newSingleThreadExecutor()

// rank

fun generate() {
    // generate
    check(drawn.single().single().tokens.size == 8) { "$drawn" }
}

val REQUEST = Request(
    user = "u0",
    contextual = mapOf("age_bucket" to 2L, "country" to 2L),
    history = listOf("item_id", "genre", "action", "watchtime", "timestamp").associateWith { listOf(1L, 3L) },
    candidates = listOf("item_id", "genre").associateWith { listOf(2L, 1L) } + ("timestamp" to List(2) { 1738040000L }),
)

fun main(arguments: Array<String>) = runBlocking {
    generate()
    val ranker = Ranker.load(arguments[0])
    val expected = ranker.rank(listOf(REQUEST))
    check(rank(ranker, listOf(REQUEST)) == expected)
    // Its thread is free soon after it is cancelled.
    val many = launch { rank(ranker, List(100_000) { REQUEST }) }
    delay(100)
    val start = System.nanoTime()
    many.cancelAndJoin()
    check(rank(ranker, listOf(REQUEST)) == expected && System.nanoTime() - start < 5e9)
    executor.shutdown()
}
