import { expect, test } from "vitest";
import { causeWords, choiceWords, policyWords, tierWords } from "./words";

test("policies and causes are told in words, and what is unknown as it is", () => {
  expect(policyWords("separate:0.875,retain=49168")).toBe(
    "late ones apart, 87.5 % for those in order, the newest 49\u202f168 held back",
  );
  expect(policyWords("conventional,leaf=2048")).toBe("one buffer for all, leaves of 2\u202f048");
  expect(policyWords("some:new")).toBe("some:new");
  expect(choiceWords("adaptive: separate:0.5 and conventional")).toBe(
    "late ones apart, 50 % for those in order; or one buffer for all (chosen by what arrives)",
  );
  expect(causeWords("flush")).toBe("stored for the first time");
  expect(causeWords("some_other")).toBe("some other");
});

test("a fast tier is in order, or it is told what is not", () => {
  const kept = { bytes: 10, bytesMax: undefined, segments: 2, reads: 5, dropped: 0, refused: 0 };
  const tier = {
    folder: "/mnt/fast",
    parts: "log,newest",
    fastBytes: 100,
    fastBytesMax: 1_000,
    bulkBytes: 1,
    fastWritten: 1,
    bulkWritten: 1,
    mirrorBehind: undefined,
    index: undefined,
    newest: kept,
  };
  expect(tierWords(tier)).toBe("in order");
  expect(tierWords({ ...tier, fastBytes: 960 })).toBe("the log has little room");
  const worn = { ...kept, dropped: 1_200, refused: 3 };
  expect(tierWords({ ...tier, newest: worn })).toBe(
    "1\u202f200 parts of copies damaged and rebuilt; " +
      "no room for more partitions: older ones are read from the large device",
  );
});
