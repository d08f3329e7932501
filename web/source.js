// The bytes of a package, from a URL or from memory.

import { RewireError } from "./connection.js";

/** An `ArrayBuffer` that is not shared. */
export async function bytesOf(source, { signal, onProgress }) {
  if (typeof source === "string" || source instanceof URL) return fetched(new URL(source, document.baseURI).href, signal, onProgress);
  if (source instanceof Blob) return source.arrayBuffer();
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice().buffer;
  if (source instanceof ArrayBuffer) return source.slice(0);
  throw new RewireError({ code: "option", message: "a package is a URL, a Blob, an ArrayBuffer or a typed array" });
}

async function fetched(address, signal, onProgress) {
  const fail = (why) => new RewireError({ code: "fetch", message: `cannot fetch ${address}: ${why}` });
  const orAbort = (cause) => {
    throw signal?.aborted ? signal.reason : fail(cause.message);
  };
  const response = await fetch(address, { signal }).catch(orAbort);
  if (!response.ok) throw fail(`${response.status} ${response.statusText}`);
  // The length of a compressed response is not that of its content.
  const encoded = response.headers.has("content-encoding");
  const total = encoded ? null : Number(response.headers.get("content-length")) || null;
  const parts = [];
  let loaded = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read().catch(orAbort);
    if (done) return joined(parts, loaded);
    parts.push(value);
    loaded += value.length;
    onProgress?.({ loaded, total });
  }
}

function joined(parts, length) {
  const all = new Uint8Array(length);
  let end = 0;
  for (const part of parts) {
    all.set(part, end);
    end += part.length;
  }
  return all.buffer;
}
