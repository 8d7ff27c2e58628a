import { expect, test } from "vitest";
import { causeWords, choiceWords, policyWords } from "./words";

test("policies and causes are told in words, and what is unknown as it is", () => {
  expect(policyWords("separate:0.875,retain=49168")).toBe(
    "late ones apart, 87.5 % for those in order, the newest 49\u202f168 kept back",
  );
  expect(policyWords("conventional,leaf=2048")).toBe("one buffer for all, leaves of 2\u202f048");
  expect(policyWords("some:new")).toBe("some:new");
  expect(choiceWords("adaptive: separate:0.5 and conventional")).toBe(
    "late ones apart, 50 % for those in order; or one buffer for all (chosen by what arrives)",
  );
  expect(causeWords("flush")).toBe("stored for the first time");
  expect(causeWords("some_other")).toBe("some other");
});
