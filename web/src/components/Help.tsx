/** Keys and gestures. */
import type { JSX } from "preact";
import notices from "../../THIRD_PARTY.txt?url";
import { Dialog } from "./Dialog";

const KEYS: readonly (readonly [readonly string[], string])[] = [
  [["W", "↑", "+"], "zoom in"],
  [["S", "↓", "−"], "zoom out"],
  [["A", "←"], "earlier"],
  [["D", "→"], "later"],
  [["F"], "fit: all data"],
  [["L"], "live: follow the newest data"],
  [["R"], "replay the visible range; again: end it"],
  [["Space"], "play, pause"],
  [["N", "P"], "next mark, previous mark"],
  [[",", "."], "move the cursor"],
  [["U"], "switch between the chosen time zone and UTC"],
  [["PgUp", "PgDn"], "scroll the plots"],
  [["/"], "search streams"],
  [["Esc"], "stop, clear, close"],
];

const GESTURES: readonly (readonly [string, string])[] = [
  ["Wheel", "zoom at the pointer; where there are more plots than fit, scroll"],
  ["Ctrl + wheel", "zoom at the pointer"],
  ["Shift + wheel", "earlier, later"],
  ["Drag", "move; let go in motion and it glides"],
  ["Shift + drag", "zoom into a part"],
  ["Pinch", "zoom with two fingers"],
  ["Click", "the rows behind a point"],
  ["Double click", "fit"],
];

export function Help({ onClose }: { onClose: () => void }): JSX.Element {
  return (
    <Dialog title="Keys and gestures" onClose={onClose}>
      <div class="help">
        <table>
          <tbody>
            {KEYS.map(([keys, meaning]) => (
              <tr key={meaning}>
                <th scope="row">
                  {keys.map((key) => (
                    <kbd key={key}>{key}</kbd>
                  ))}
                </th>
                <td>{meaning}</td>
              </tr>
            ))}
          </tbody>
        </table>
        <table>
          <tbody>
            {GESTURES.map(([gesture, meaning]) => (
              <tr key={gesture}>
                <th scope="row">{gesture}</th>
                <td>{meaning}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="soft">
        The line is the mean, the band reaches from the least to the greatest value: nothing vanishes when you zoom out.
        Where the line stops, there are no data. The address holds all you see; copy it to share.{" "}
        <a href={notices} target="_blank" rel="noreferrer">
          Licences
        </a>
      </p>
    </Dialog>
  );
}
