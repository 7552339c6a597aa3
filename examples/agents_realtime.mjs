// Ask a running server in writing with OpenAI's agents framework, and print the answer.
//
// node agents_realtime.mjs ws://127.0.0.1:8099/v1/realtime "What time is it?"

import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession } from "@openai/agents-realtime";

const [url, question] = process.argv.slice(2);
const agent = new RealtimeAgent({ name: "assistant", instructions: "Answer in one short sentence." });
const session = new RealtimeSession(agent, { transport: new OpenAIRealtimeWebSocket({ url }) });
let bytes = 0;

session.on("audio", ({ data }) => {
  bytes += data.byteLength; // PCM16 at 24 kHz: play it
});
session.on("audio_interrupted", () => {}); // the user talks over the answer: stop playing at once
session.on("agent_end", (context, speaker, text) => {
  console.log(`${text} (${bytes} bytes of sound)`);
  session.close();
});
session.on("error", ({ error }) => {
  console.error(error);
  process.exitCode = 1;
  session.close();
});

await session.connect({ apiKey: process.env.OPENAI_API_KEY ?? "any" }); // a server without a key takes any
session.sendMessage(question); // a microphone: session.sendAudio(pcm16), again and again
