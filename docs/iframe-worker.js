// The search runs in a worker, and a browser starts no worker for a page that is opened from a file. On such a page,
// this class takes the place of Worker: it runs the worker's script in a hidden frame.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    const inside = (this.inside = frame.contentWindow);
    const load = (source) =>
      new Promise((resolve, reject) => {
        const script = inside.document.createElement("script");
        script.src = source;
        script.onload = resolve;
        script.onerror = reject;
        inside.document.body.append(script);
      });
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = async (...sources) => {
      for (const source of sources) await load(source);
    };
    this.loaded = load(url);
  }

  async postMessage(data) {
    await this.loaded;
    this.inside.dispatchEvent(new MessageEvent("message", { data }));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
