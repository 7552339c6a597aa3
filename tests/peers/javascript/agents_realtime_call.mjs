// Calls of OpenAI's agents framework (`@openai/agents-realtime`), as it is installed: a program of its own.
//
// node agents_realtime_call.mjs {scripted,ahead,cascade,rewriting,refused} http://127.0.0.1:8099 --recordings FOLDER --record FILE

import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";
import { main, realtime } from "./call.mjs";
import { parseRealtimeEvent, realtimeServerEventSchema } from "./node_modules/@openai/agents-realtime/dist/openaiRealtimeEvents.mjs";

const KNOWN = new Set(realtimeServerEventSchema.options.map((schema) => schema.shape.type.value));

/** A session of the framework, with a microphone that is on, for as long as `talk` takes. */
async function conversation({ url, key, call, microphone }, config, talk) {
  const notes = Object.assign(call.notes, { executions: [], unreadable: [], unknown: [], errors: [] });
  let stops = 0;
  const weather = tool({
    name: "weather",
    description: "The weather in a city.",
    parameters: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      notes.executions.push(city);
      return `It is sunny in ${city}.`;
    },
  });
  const agent = new RealtimeAgent({ name: "assistant", instructions: "You are a helpful assistant.", tools: [weather] });
  const transport = new OpenAIRealtimeWebSocket({ url: realtime(url), useInsecureApiKey: true });
  const session = new RealtimeSession(agent, { transport, model: "gpt-realtime", config });
  session.on("transport_event", (event) => {
    const { isGeneric } = parseRealtimeEvent({ data: JSON.stringify(event) });
    if (isGeneric && KNOWN.has(event.type)) notes.unreadable.push(event);
    if (!KNOWN.has(event.type)) notes.unknown.push(event.type);
    call.hear(event);
  });
  session.on("audio_interrupted", () => call.does(`stop playing ${++stops}`));
  session.on("error", ({ error }) => notes.errors.push(String(error?.message ?? JSON.stringify(error))));
  await session.connect({ apiKey: key });
  await call.hears("session.created");
  await call.hears("session.updated", (event) => event.session.instructions);
  notes.subprotocol = transport.connectionState.websocket.protocol;
  const speaking = microphone.run((chunk) => session.sendAudio(chunk));
  await talk(session);
  microphone.off();
  await speaking;
  notes.history = session.history;
  notes.usage = session.usage;
  session.close();
}

/** Ask a recorded question; returns the id of its answer. */
async function ask({ call, microphone }, name) {
  call.does(`ask ${name}`);
  await microphone.ask(name);
  return call.answer();
}

/** An answer talked over, the next one heard to its end, then written questions, answered in sound, in writing, by a tool. */
async function scripted(tools) {
  const { call } = tools;
  await conversation(tools, {}, async (session) => {
    const first = await ask(tools, "what_time_is_it");
    await call.plays(first, 1);
    const second = await ask(tools, "how_do_you_say_grapefruit");
    await call.ends(second);
    session.sendMessage("Say hello.");
    await call.ends(await call.answer());
    session.sendMessage("What is the weather in Rome?");
    await call.hearsOutput("function_call");
    await call.ends(await call.answer());
    session.transport.updateSessionConfig({ outputModalities: ["text"] });
    await call.hears("session.updated");
    session.sendMessage("Write hello.");
    await call.ends(await call.answer());
  });
}

/** An answer that is complete long before it is played, and talked over; the next question is answered. */
async function ahead(tools) {
  const { call } = tools;
  await conversation(tools, {}, async () => {
    const first = await ask(tools, "what_time_is_it");
    await call.ends(first);
    await call.plays(first, 1);
    await call.ends(await ask(tools, "how_do_you_say_grapefruit"));
  });
}

/** The embedded voice, speaking slowly: an answer talked over, and the next question answered until a button is pressed. */
async function cascade(tools) {
  const { call } = tools;
  await conversation(tools, { audio: { output: { speed: 0.5 } } }, async (session) => {
    const first = await ask(tools, "what_time_is_it");
    await call.plays(first, 0.5);
    const second = await ask(tools, "how_do_you_say_grapefruit");
    await call.plays(second, 1);
    session.interrupt();
    await call.ends(second);
    await call.hears("conversation.item.retrieved", ({ item }) => item.id === `item_${second}`);
  });
}

/** A history that the application writes: three messages, then one in front and one in other words, then all but one gone. */
async function rewriting(tools) {
  const { call } = tools;
  const message = (itemId, role, type, text) => ({ itemId, type: "message", role, status: "completed", content: [{ type, text }] });
  await conversation(tools, {}, async (session) => {
    session.updateHistory([
      message("rules", "system", "input_text", "Be brief."),
      message("question", "user", "input_text", "Who are you?"),
      message("answer", "assistant", "output_text", "A voice."),
    ]);
    await call.hears("conversation.item.done", ({ item }) => item.id === "answer");
    session.updateHistory(([rules, question, answer]) => [
      message("greeting", "user", "input_text", "Hello."),
      rules,
      { ...question, content: [{ type: "input_text", text: "Who is this?" }] },
      answer,
    ]);
    await call.hears("conversation.item.done", ({ item }) => item.id === "question");
    call.notes.rewritten = session.history.map(({ itemId, content }) => [itemId, content[0].text]);
    session.updateHistory(([greeting]) => [greeting]);
    await call.hears("conversation.item.deleted", ({ item_id }) => item_id === "answer");
  });
}

/** A key that the server does not know. */
async function refused({ url, key, call }) {
  const transport = new OpenAIRealtimeWebSocket({ url: realtime(url), useInsecureApiKey: true });
  const session = new RealtimeSession(new RealtimeAgent({ name: "assistant" }), { transport });
  session.on("error", () => {});
  const connected = session.connect({ apiKey: key });
  call.notes.refusal = await connected.then(() => null, (error) => String(error.message ?? error.type));
}

await main({ scripted, ahead, cascade, rewriting, refused });
