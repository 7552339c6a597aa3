// A call from the server's own page: somebody connects, speaks, coughs, talks over an answer, writes, and hangs up.
//
// node --experimental-websocket page_call.mjs scripted http://127.0.0.1:8099 --key KEY --recordings FOLDER --record FILE

import { Page } from "./browser.mjs";
import { main } from "./call.mjs";

async function scripted({ url, key, call, microphone }) {
  const address = `${url}/`;
  const html = await (await fetch(address)).text();
  const page = new Page(address, html, call);
  const { door, pen, trouble, words } = page.elements;
  call.notes.states = page.elements.state.texts;
  door.submit();
  await until(() => trouble.textContent === "this server wants a key");
  page.elements.key.value = "wrong";
  door.submit();
  await until(() => trouble.textContent === "that is not the key");
  page.elements.key.value = key;
  door.submit();
  await call.hears("session.updated");
  await until(() => page.state === "listening");
  const speaking = microphone.run((chunk) => page.speak(new Int16Array(chunk)));
  await microphone.ask("what_time_is_it");
  const first = await call.answer();
  await call.plays(first, 0.5);
  await microphone.ask("what_time_is_it", 0.5);
  await call.hears("input_audio_buffer.speech_stopped");
  call.does("play on");
  call.notes.playing = page.loudspeakers.every(({ suspended }) => !suspended) && page.queued.length;
  await call.plays(first, 2);
  const asking = microphone.ask("how_do_you_say_grapefruit");
  await call.hears("input_audio_buffer.speech_started");
  await until(() => page.loudspeakers.some(({ suspended }) => suspended));
  call.does("fall silent");
  call.notes.kept = page.queued.length;
  await call.ends(first);
  call.notes.left = page.queued.length;
  await asking;
  const second = await call.answer();
  await call.ends(second);
  call.notes.playingOn = page.queued.length;
  await until(() => !page.queued.length);
  const write = (text) => {
    words.value = text;
    pen.submit();
    return call.answer();
  };
  await call.ends(await write("Say hello."));
  await call.hears("playback.acknowledged", ({ event }) => event.played_ms === 1000);
  const fourth = await write("Tell me a story.");
  await call.plays(fourth, 0.5);
  await call.ends(await write("That will do."));
  await until(() => !page.queued.length);
  await until(() => page.state === "listening");
  call.notes.said = page.said;
  call.notes.trouble = trouble.textContent;
  door.submit();
  await until(() => page.state === "not connected");
  microphone.off();
  await speaking;
}

async function until(holds) {
  while (!holds()) await new Promise((soon) => setTimeout(soon, 1));
}

await main({ scripted });
