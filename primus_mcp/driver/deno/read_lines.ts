// The one function that DSPy's sandbox runner takes from Deno's standard library, so that the library need not be fetched.
export async function* readLines(source: { readable: ReadableStream<Uint8Array> }): AsyncGenerator<string> {
  const lines = source.readable.pipeThrough(new TextDecoderStream());
  let rest = "";
  for await (const chunk of lines) {
    const parts = (rest + chunk).split("\n");
    rest = parts.pop() ?? "";
    for (const part of parts) {
      yield part.replace(/\r$/, "");
    }
  }
  if (rest !== "") {
    yield rest;
  }
}
