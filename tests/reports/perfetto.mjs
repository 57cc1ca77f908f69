// Perfetto's own trace processor, as its page in the browser runs it, without a browser:
//   node perfetto.mjs FOLDER REQUESTS REPLIES
// FOLDER holds engine_bundle.js and its .wasm; REQUESTS and REPLIES are streams of its protocol.
import fs from "fs";
import path from "path";
import vm from "vm";
import {MessageChannel} from "worker_threads";

const [folder, requests, replies] = process.argv.slice(2);
const {exit} = process;
const local = (url) => path.join(folder, path.basename(String(url)));
const bytes = (url) => {
  const read = fs.readFileSync(local(url));
  return read.buffer.slice(read.byteOffset, read.byteOffset + read.length);
};

globalThis.self = globalThis;
globalThis.importScripts = () => {};
globalThis.WorkerGlobalScope = class {};
globalThis.location = {href: "file:///engine_bundle.js"};
globalThis.fetch = async (url) =>
  new Response(bytes(url), {headers: {"content-type": "application/wasm"}});
globalThis.XMLHttpRequest = class {
  open(_, url) { this.url = url; }
  send() { this.response = bytes(this.url); this.status = 200; this.onload?.(); }
};
Object.defineProperty(globalThis, "process", {value: undefined, writable: true});

vm.runInThisContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"));
const {port1, port2} = new MessageChannel();
globalThis.onmessage({data: {
  postMessage: (reply) => port1.postMessage(reply),
  set onmessage(take) { port1.on("message", (data) => take({data})); },
}});
const out = fs.openSync(replies, "w");
const sent = new Uint8Array(fs.readFileSync(requests));
const STOP = 2000;  // quiet for so long: everything is answered [ms]
let last = Date.now() + 20000;
port2.on("message", (reply) => { fs.writeSync(out, reply); last = Date.now(); });
port2.postMessage(sent);
setInterval(() => { if (Date.now() - last > STOP) { fs.closeSync(out); exit(0); } }, 100);
