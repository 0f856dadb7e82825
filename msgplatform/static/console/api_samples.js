"use strict";

// A plugin of Swagger UI: the samples of an operation (x-codeSamples) above its parameters.
const codeSamples = (system) => {
  const Sample = ({ sample }) => {
    const element = system.React.createElement;
    return element(
      "details",
      { className: "sample" },
      element("summary", null, sample.get("label")),
      element("pre", { className: "example microlight" }, sample.get("source"))
    );
  };

  const Samples = ({ operation }) => {
    const element = system.React.createElement;
    const samples = operation.get("x-codeSamples");
    if (!samples) return null;
    const children = samples.map((sample) => element(Sample, { key: sample.get("label"), sample }));
    return element("div", { className: "samples" }, children.toArray());
  };

  return {
    wrapComponents: {
      parameters: (Parameters) => (props) => {
        const { createElement: element, Fragment } = system.React;
        return element(Fragment, null, element(Samples, { operation: props.operation }), element(Parameters, props));
      },
    },
  };
};
