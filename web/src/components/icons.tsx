/** Small line drawings, in the colour of the text around them. */
import type { JSX } from "preact";

const PATHS = {
  fit: "M4 5v14M20 5v14M7.5 12h9M10 9l-3 3 3 3M14 9l3 3-3 3",
  live: "M8.5 15.5a5 5 0 0 1 0-7M15.5 8.5a5 5 0 0 1 0 7M5.6 18.4a9 9 0 0 1 0-12.8M18.4 5.6a9 9 0 0 1 0 12.8M12 12h.01",
  download: "M12 4v11m-4-4 4 4 4-4M5 20h14",
  help: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18ZM9.6 9.4a2.5 2.5 0 1 1 3.7 2.2c-.9.5-1.3 1-1.3 1.9M12 16.6h.01",
  close: "M6 6l12 12M18 6 6 18",
  search: "M11 17a6 6 0 1 0 0-12 6 6 0 0 0 0 12Zm9 3-4.5-4.5",
  chevron: "m9 6 6 6-6 6",
  flag: "M6 21V4h12l-3 4 3 4H6",
  play: "M8 5.5v13l10-6.500z",
  pause: "M8.500 6v12M15.500 6v12",
  rewind: "M7 6v12M18 6.500v11L10 12z",
  menu: "M4 7h16M4 12h16M4 17h16",
  lock: "M7 11V8a5 5 0 0 1 10 0v3M6 11h12v9H6z",
  unlock: "M7 11V8a5 5 0 0 1 9.6-2M6 11h12v9H6z",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8Zm0-13v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10 1.4 1.4m0-12.8L17 7M7 17l-1.4 1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z",
  auto: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16Zm0 0v16",
  bell: "M6 16V11a6 6 0 0 1 12 0v5l2 2H4zM10 21h4",
  camera: "M4 8h4l2-3h4l2 3h4v11H4zM12 16.500a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7Z",
  stack: "M4 5h16v5H4zM4 14h16v5H4z",
  overlay: "M4 5h16v14H4zM4 15l5-5 4 3 7-6",
  group: "M4 4h16v7H4zM4 9l6-3 4 2 6-2M4 15h16v5H4z",
  plus: "M12 6v12M6 12h12",
  minus: "M6 12h12",
  up: "M12 19V6m-5 5 5-5 5 5",
  down: "M12 5v13m-5-5 5 5 5-5",
  copy: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.700-5.700l-1.200 1.200M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.700 5.700l1.200-1.200",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 24 24" width="18" height="18" aria-hidden="true">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.8"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}
