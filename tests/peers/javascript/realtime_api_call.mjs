// A call of `openai-realtime-api`, which still speaks the names of the beta: a program of its own.
//
// node realtime_api_call.mjs scripted http://127.0.0.1:8099 --recordings FOLDER --record FILE

import { RealtimeAPI } from "openai-realtime-api";
import { main, realtime } from "./call.mjs";

const SESSION = {
  modalities: ["text", "audio"],
  instructions: "You are a helpful assistant.",
  voice: "alloy",
  input_audio_format: "pcm16",
  output_audio_format: "pcm16",
  input_audio_transcription: { model: "whisper-1" },
  turn_detection: { type: "server_vad", threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms: 500 },
  tools: [],
  tool_choice: "auto",
  temperature: 0.8,
  max_response_output_tokens: 4096,
};

/** An answer talked over, and the next one heard to its end. */
async function scripted({ url, key, call, microphone }) {
  const api = new RealtimeAPI({ url: realtime(url), apiKey: key });
  api.on("server.*", (event) => call.hear(event));
  await api.connect();
  await call.hears("session.created");
  api.send("session.update", { session: SESSION });
  await call.hears("session.updated", (event) => event.session.instructions);
  const speaking = microphone.run((chunk) =>
    api.send("input_audio_buffer.append", { audio: Buffer.from(chunk).toString("base64") }),
  );
  await microphone.ask("what_time_is_it");
  const first = await call.answer();
  await call.plays(first, 1);
  await microphone.ask("how_do_you_say_grapefruit");
  await call.ends(await call.answer());
  microphone.off();
  await speaking;
  api.disconnect();
}

await main({ scripted });
