// A thread of the library, which receives the library's code and memory. It helps with kernels until the worker that started it ends.

import { help, initSync } from "./rewire_web_threads.js";

self.onmessage = ({ data: { module, memory, failures } }) => {
  initSync({ module, memory });
  self.postMessage("started");
  try {
    help();
  } catch (error) {
    // The thread that waits for this one would never return, so the page reports the error.
    new BroadcastChannel(failures).postMessage(error.message ?? String(error));
  }
};
