/** The page without a server, as `elmokit site` writes it. */

import { setBackend } from "./api.ts";
import { BrowserBackend } from "./backends/browser.ts";
import { showProgress, start } from "./main.ts";

/** Waits until the service worker sees the page's requests, so that the first visit is kept. */
async function keepFiles(): Promise<void> {
  if (!("serviceWorker" in navigator)) return; // an address without TLS that is not localhost
  const { serviceWorker } = navigator;
  try {
    const registration = await serviceWorker.register("sw.js");
    if (serviceWorker.controller !== null || registration.active !== null) return;
    await new Promise((resolve) => {
      serviceWorker.addEventListener("controllerchange", resolve, { once: true });
      setTimeout(resolve, 5000);
    });
  } catch {
    // The browser keeps no files for this site; everything but offline use works.
  }
}

await keepFiles();
setBackend(new BrowserBackend(showProgress));
start();
