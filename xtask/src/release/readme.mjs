// Prints what the program of the README, served as `readme.js`, prints in headless Chromium: `node readme.mjs ADDRESS`.

import { Chromium } from "../bindings/chromium.mjs";

const page = await Chromium.open(process.argv[2]);
try {
  const lines = await page.call(async () => {
    const lines = [];
    console.log = (...values) => lines.push(values.join(" "));
    await import("./readme.js");
    return lines;
  });
  console.log(lines.join("\n"));
} finally {
  await page.close();
}
