"use strict";

// A plugin of Swagger UI: the samples of an operation (x-codeSamples) above its parameters. The
// language that a person chooses is the first one for every operation from then on.
const codeSamples = (texts) => (system) => {
  const { createElement: element, Fragment, useState } = system.React;
  const CHOICE = "apiDocsLanguage";

  const Copy = ({ source }) => {
    const [isCopied, setCopied] = useState(false);
    if (!navigator.clipboard) return null; // without https
    const copy = () => navigator.clipboard.writeText(source).then(() => setCopied(true));
    return element("button", { type: "button", className: "copy", onClick: copy },
      isCopied ? texts.copied : texts.copy);
  };

  const Samples = ({ operation }) => {
    const samples = (operation.get("x-codeSamples") ?? []).toJS?.() ?? [];
    const [choice, setChoice] = useState(localStorage.getItem(CHOICE));
    if (!samples.length) return null;
    const shown = samples.find((sample) => sample.label === choice) ?? samples[0];
    const choose = (label) => {
      localStorage.setItem(CHOICE, label);
      setChoice(label);
    };
    const tabs = samples.map(({ label }) =>
      element("button", { key: label, type: "button", className: "sample-tab",
        "aria-pressed": label === shown.label, onClick: () => choose(label) }, label));
    return element("div", { className: "samples" },
      element("div", { className: "sample-tabs" }, tabs, element(Copy, { key: shown.label, source: shown.source })),
      element("pre", { className: "sample", tabIndex: 0 }, shown.source));
  };

  return {
    wrapComponents: {
      parameters: (Parameters) => (props) =>
        element(Fragment, null, element(Samples, { operation: props.operation }), element(Parameters, props)),
    },
  };
};
