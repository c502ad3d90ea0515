"use strict";
// A browser starts no worker from a file. There the search runs in a hidden frame, so that the site
// can be read and searched without a server. On a server this file does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.document.open();
      inside.document.write("<body></body>");
      inside.document.close();
      const load = (src) =>
        new Promise((resolve, reject) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src, onload: resolve, onerror: reject });
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((done, src) => done.then(() => load(src)), Promise.resolve());
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
