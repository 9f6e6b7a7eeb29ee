/** The page of `elmokit serve`. */

import { setBackend } from "./api.ts";
import { server } from "./backends/server.ts";
import { start } from "./main.ts";

setBackend(server);
start();
