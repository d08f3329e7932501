// A thread of the library, whose code and memory it is given. It helps with kernels as long as the worker that began it lives.

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
