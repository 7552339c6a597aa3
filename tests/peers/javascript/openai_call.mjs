// Calls of OpenAI's JavaScript client (`OpenAIRealtimeWS`), as it is installed: a program of its own. It always wants TLS.
//
// node openai_call.mjs {scripted,browser,refused} https://127.0.0.1:8099 --recordings FOLDER --record FILE

import OpenAI from "openai";
import { OpenAIRealtimeWebSocket } from "openai/realtime/websocket";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { main } from "./call.mjs";

const PCM = { type: "audio/pcm", rate: 24_000 };
const WEATHER = {
  type: "function",
  name: "weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
const SESSION = {
  type: "realtime",
  model: "gpt-realtime",
  instructions: "You are a helpful assistant.",
  output_modalities: ["audio"],
  audio: {
    input: {
      format: PCM,
      noise_reduction: { type: "near_field" },
      transcription: { model: "gpt-4o-mini-transcribe" },
      turn_detection: { type: "server_vad", create_response: true, interrupt_response: true, idle_timeout_ms: null },
    },
    output: { format: PCM, voice: "marin", speed: 1 },
  },
  tools: [WEATHER],
  tool_choice: "auto",
  max_output_tokens: "inf",
  truncation: "auto",
  tracing: null,
};

/** A connection of the client, which has one class for servers and one for browsers. */
function connect({ url, key, call }, Line = OpenAIRealtimeWS) {
  const client = new OpenAI({ apiKey: key, baseURL: `${url}/v1`, dangerouslyAllowBrowser: true });
  call.notes.errors = [];
  const line = new Line({ model: "gpt-realtime" }, client);
  line.on("event", (event) => call.hear(event));
  line.on("error", (error) => call.notes.errors.push(error.message));
  return line;
}

/** An answer talked over, the next one heard to its end, then written questions, answered in sound, in writing, by a tool. */
async function scripted(tools) {
  const { call, microphone } = tools;
  const line = connect(tools);
  await call.hears("session.created");
  await call.hears("session.updated");
  line.send({ type: "session.update", session: SESSION });
  await call.hears("session.updated");
  const speaking = microphone.run((chunk) =>
    line.send({ type: "input_audio_buffer.append", audio: Buffer.from(chunk).toString("base64") }),
  );
  await microphone.ask("what_time_is_it");
  const first = await call.answer();
  await call.plays(first, 1);
  const asking = microphone.ask("how_do_you_say_grapefruit");
  await call.hears("input_audio_buffer.speech_started");
  line.send({ type: "conversation.item.truncate", item_id: `item_${first}`, content_index: 0, audio_end_ms: 500 });
  await call.hears("conversation.item.truncated");
  await call.ends(first);
  await asking;
  await call.ends(await call.answer());
  write(line, "Say hello.", { metadata: { topic: "greeting" } });
  await call.ends(await call.answer());
  write(line, "What is the weather in Rome?");
  const { output } = await call.hearsOutput("function_call");
  const calls = output.filter((item) => item.type === "function_call");
  call.notes.executions = calls.map((item) => JSON.parse(item.arguments).city);
  const result = { type: "function_call_output", call_id: calls[0].call_id, output: "It is sunny in Rome." };
  line.send({ type: "conversation.item.create", item: result });
  line.send({ type: "response.create" });
  await call.ends(await call.answer());
  write(line, "Write hello.", { output_modalities: ["text"] });
  await call.ends(await call.answer());
  microphone.off();
  await speaking;
  line.close();
}

/** Write something, and ask for an answer with these options. */
function write(line, text, response) {
  const content = [{ type: "input_text", text }];
  line.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  line.send({ type: "response.create", response });
}

/** What a browser can do: the key is offered as a subprotocol. */
async function browser(tools) {
  const { call } = tools;
  const line = connect(tools, OpenAIRealtimeWebSocket);
  await call.hears("session.created");
  call.notes.subprotocol = line.socket.protocol;
  write(line, "What time is it?", { output_modalities: ["text"] });
  await call.ends(await call.answer());
  line.close();
}

/** A key that the server does not know. */
async function refused(tools) {
  const line = connect(tools);
  await new Promise((closed) => line.socket.on("close", closed));
}

await main({ scripted, browser, refused });
