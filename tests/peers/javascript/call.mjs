// What the calls of JavaScript clients share: recordings, a microphone that is never off, and a record of the call.
//
// Runs in the caller's own process. The test that started it reads the record from a file (`peer_record.py`).

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const CALL_S = 50;
const CHUNK_S = 0.08;
const ROOM_LOUDNESS = 45; // of full scale 32768: a quiet room, far below what counts as speech
const DELTA = "response.output_audio.delta";
export const RATE_HZ = 24_000;

/** Everything that was heard of a call, with its time, what the caller did, and what its client made of it. */
export class Call {
  heard = [];
  moves = [];
  notes = {};
  #began = performance.now();
  #position = 0;
  #waiting = [];

  /** An event of the server has come. */
  hear(event) {
    this.heard.push({ at: this.#now(), event });
    this.#waiting.splice(0).forEach((wake) => wake());
  }

  /** Note what the caller does now. */
  does(move) {
    this.moves.push([this.#now(), move]);
  }

  /** The next event of this type that fits, after the one that was waited for last. */
  async hears(type, fits = () => true) {
    for (;;) {
      while (this.#position < this.heard.length) {
        const { event } = this.heard[this.#position++];
        if (event.type === type && fits(event)) return event;
      }
      await this.#news();
    }
  }

  /** The next answer that begins; returns its id. */
  async answer() {
    const { response } = await this.hears("response.created");
    return response.id;
  }

  /** The end of an answer. */
  async ends(responseId) {
    const { response } = await this.hears("response.done", (event) => event.response.id === responseId);
    return response;
  }

  /** The end of the next answer that has an item of this type. */
  async hearsOutput(type) {
    const has = ({ response }) => response.output.some((item) => item.type === type);
    const { response } = await this.hears("response.done", has);
    return response;
  }

  /** Wait until so much sound of an answer has come, and as long as playing it takes. */
  async plays(responseId, seconds) {
    const ofAnswer = ({ event }) => event.type === DELTA && event.response_id === responseId;
    const size = () => this.heard.filter(ofAnswer).reduce((sum, { event }) => sum + (event.delta.length * 3) / 4, 0);
    while (size() < 2 * RATE_HZ * seconds) await this.#news();
    await sleep(1000 * (this.heard.find(ofAnswer).at + seconds - this.#now()));
  }

  /** Leave the record for the test. */
  async write(path) {
    const { heard, moves, notes } = this;
    await writeFile(path, JSON.stringify({ heard, moves, notes }));
  }

  #news() {
    return new Promise((wake) => this.#waiting.push(wake));
  }

  #now() {
    return (performance.now() - this.#began) / 1000;
  }
}

/** Sends sound at the pace of speaking, without a pause: what is to be said, else the noise of the room. */
export class Microphone {
  #recordings;
  #said = new Int16Array();
  #silent = () => {};
  #on = true;

  /** `recordings`: a folder of recorded questions, as raw PCM16 at RATE_HZ. */
  constructor(recordings) {
    this.#recordings = recordings;
  }

  /** Ask a recorded question, or only its first `seconds`; returns when it is said. */
  async ask(name, seconds = Infinity) {
    const { buffer, byteOffset, length } = await readFile(join(this.#recordings, `${name}.pcm`));
    const end = byteOffset + Math.min(length, 2 * Math.round(RATE_HZ * seconds));
    this.#said = new Int16Array(buffer.slice(byteOffset, end));
    await new Promise((silent) => (this.#silent = silent));
  }

  /** Give `send` chunk after chunk, until it is switched off. */
  async run(send) {
    for (let due = performance.now(); this.#on; due += 1000 * CHUNK_S) {
      await sleep(due - performance.now());
      const chunk = Int16Array.from({ length: RATE_HZ * CHUNK_S }, () => ROOM_LOUDNESS * (2 * Math.random() - 1));
      chunk.set(this.#said.subarray(0, chunk.length));
      this.#said = this.#said.subarray(chunk.length);
      send(chunk.buffer);
      if (!this.#said.length) this.#silent();
    }
  }

  /** Send nothing any more. */
  off() {
    this.#on = false;
  }
}

/** Where the WebSocket of a server is whose HTTP side is at `url`. */
export const realtime = (url) => `${url.replace("http", "ws")}/v1/realtime`;

/** Make one of `calls`, as the command line says, and leave its record whatever comes of it. */
export async function main(calls) {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { record: { type: "string" }, recordings: { type: "string" }, key: { type: "string", default: "any" } },
  });
  const [name, url] = positionals;
  const call = new Call();
  const late = sleep(1000 * CALL_S, null, { ref: false }).then(() => Promise.reject(new Error(`no end in ${CALL_S} s`)));
  try {
    await Promise.race([calls[name]({ url, key: values.key, call, microphone: new Microphone(values.recordings) }), late]);
  } catch (error) {
    console.error(error);
    process.exitCode = 1;
  }
  await call.write(values.record);
  process.exit();
}
