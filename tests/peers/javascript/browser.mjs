// As much of a browser as the server's page needs: elements, a loudspeaker with a clock of its own, a microphone.
//
// Runs the page's own script, unchanged, and the microphone's program as the audio thread would.

import { resolveObjectURL } from "node:buffer";
import { runInNewContext } from "node:vm";

const HARDWARE_HZ = 48_000;
const BLOCK = 128;
const TICK_MS = 5;

class Element {
  className = "";
  value = "";
  children = [];
  classList = { add: (name) => (this.className += ` ${name}`) };

  /** `texts`: every one it ever had. */
  constructor(text = "") {
    this.texts = [text];
  }

  get textContent() {
    return this.texts.at(-1);
  }

  set textContent(text) {
    if (text !== this.textContent) this.texts.push(text);
  }

  append(child) {
    this.children.push(child);
  }

  replaceChildren() {
    this.children = [];
  }

  submit() {
    this.onsubmit({ preventDefault() {} });
  }
}

/** A page that was loaded from `address`. `call` hears every event of the server that comes to it. */
export class Page {
  elements = {};
  loudspeakers = [];
  #processor = null;
  #call;

  constructor(address, html, call) {
    this.#call = call;
    for (const [, id, text] of html.matchAll(/\sid="(\w+)"[^>]*>([^<]*)/g)) this.elements[id] = new Element(text);
    runInNewContext(/<script>(.*?)<\/script>/s.exec(html)[1], this.#globals(address));
  }

  get state() {
    return this.elements.state.textContent;
  }

  /** The transcript, as pairs of who and what; the style hides lines that are empty. */
  get said() {
    const lines = this.elements.said.children.filter(({ textContent }) => textContent);
    return lines.map(({ className, textContent }) => [className, textContent]);
  }

  /** What plays now, or is to be played. */
  get queued() {
    return this.loudspeakers.flatMap((speaker) => speaker.sources);
  }

  /** PCM16 at half the hardware's rate comes into the microphone, if it is on. */
  speak(chunk) {
    const samples = Float32Array.from({ length: 2 * chunk.length }, (_, index) => chunk[index >> 1] / 32_768);
    for (let start = 0; start < samples.length; start += BLOCK) {
      this.#processor?.process([[samples.subarray(start, start + BLOCK)]]);
    }
  }

  #globals(address) {
    const page = this;
    return {
      URL,
      Blob,
      atob,
      btoa,
      location: { href: address },
      document: { getElementById: (id) => this.elements[id], createElement: () => new Element() },
      fetch: (path, options) => fetch(new URL(path, address), options),
      navigator: { mediaDevices: { getUserMedia: async () => ({ getTracks: () => [{ stop: () => this.#unplug() }] }) } },
      WebSocket: class extends WebSocket {
        constructor(url, protocols) {
          super(url, protocols);
          this.addEventListener("message", ({ data }) => page.#call.hear(JSON.parse(data)));
        }
      },
      AudioContext: class extends Loudspeaker {
        constructor() {
          super(page);
        }
      },
      AudioWorkletNode: class {
        constructor(context, name) {
          this.processor = new context.processors[name]();
          this.port = this.processor.port;
        }
        connect() {}
      },
    };
  }

  plug(processor) {
    this.#processor = processor;
  }

  #unplug() {
    this.#processor = null;
  }
}

class Loudspeaker {
  processors = {};
  sources = [];
  currentTime = 0;
  #page;
  #running = true;
  #last = performance.now();
  #timer = setInterval(() => this.#tick(), TICK_MS);

  constructor(page) {
    this.#page = page;
    page.loudspeakers.push(this);
  }

  audioWorklet = {
    addModule: async (url) => {
      const source = await resolveObjectURL(url).text();
      const registerProcessor = (name, processor) => (this.processors[name] = processor);
      const AudioWorkletProcessor = class {
        port = { postMessage: (data) => this.port.onmessage({ data }) };
      };
      runInNewContext(source, { registerProcessor, AudioWorkletProcessor, sampleRate: HARDWARE_HZ });
    },
  };

  createMediaStreamSource() {
    return { connect: ({ processor }) => this.#page.plug(processor) };
  }

  createBuffer(channels, length, rate) {
    return { duration: length / rate, copyToChannel() {} };
  }

  createBufferSource() {
    const remove = (source) => (this.sources = this.sources.filter((other) => other !== source));
    return {
      connect() {},
      start: function (at) {
        this.end = at + this.buffer.duration;
        this.speaker.sources.push(this);
      },
      stop: function () {
        remove(this);
      },
      speaker: this,
    };
  }

  get suspended() {
    return !this.#running;
  }

  suspend() {
    this.#tick();
    this.#running = false;
  }

  resume() {
    this.#tick();
    this.#running = true;
  }

  close() {
    clearInterval(this.#timer);
  }

  #tick() {
    const now = performance.now();
    if (this.#running) this.currentTime += (now - this.#last) / 1000;
    this.#last = now;
    for (const source of this.sources.filter(({ end }) => end <= this.currentTime)) {
      source.stop();
      source.onended?.();
    }
  }
}
