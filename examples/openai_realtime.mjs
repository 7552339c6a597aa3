// Ask a running server in writing with OpenAI's JavaScript client, and print the answer as it is spoken.
//
// OPENAI_API_KEY=any node openai_realtime.mjs https://127.0.0.1:8099/v1 "What time is it?"

import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";

const [baseURL, question] = process.argv.slice(2);
const line = new OpenAIRealtimeWS({ model: "cascade" }, new OpenAI({ baseURL }));
let bytes = 0;

line.on("session.created", () => {
  const content = [{ type: "input_text", text: question }];
  line.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
  line.send({ type: "response.create" });
});
line.on("response.output_audio.delta", ({ delta }) => {
  bytes += Buffer.from(delta, "base64").length; // PCM16 at 24 kHz: play it
});
line.on("response.output_audio_transcript.delta", ({ delta }) => process.stdout.write(delta));
line.on("response.done", ({ response }) => {
  console.log(response.status_details?.error?.message ?? ` (${bytes} bytes of sound)`);
  line.close();
});
line.on("error", (error) => {
  console.error(error.message);
  process.exitCode = 1;
  line.close();
});
