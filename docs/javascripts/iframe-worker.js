// Browsers start no worker of a page that was opened as a file, and the search is one: run it in a hidden frame instead.
// Its index comes as a script (the plugin `offline`), because a page that is a file may read no other one.
if (location.protocol === "file:") {
  const load = (document_, src) => new Promise((loaded, failed) => {
    document_.head.append(Object.assign(document_.createElement("script"), { src, onload: loaded, onerror: failed }));
  });
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => Promise.all(urls.map((each) => load(inside.document, each)));
      this.ready = load(inside.document, url);
    }
    postMessage(data) {
      const inside = this.frame.contentWindow;
      this.ready.then(() => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
