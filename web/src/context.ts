/** What every part of the page shares, and the hook that follows it. */
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Client } from "./api/client";
import type { Explorer } from "./explore/explorer";
import type { FirstLook } from "./explore/first";
import type { Emitter } from "./lib/emitter";
import type { Session } from "./lib/session";
import type { Theme } from "./lib/theme";

export interface Shared {
  readonly client: Client;
  readonly session: Session;
  readonly theme: Theme;
  readonly explorer: Explorer;
  readonly first: FirstLook;
}

export const SharedContext = createContext<Shared | undefined>(undefined);

export function useShared(): Shared {
  const shared = useContext(SharedContext);
  if (!shared) throw new Error("a component outside of SharedContext");
  return shared;
}

/** Renders again whenever the emitter tells. */
export function useEmitter(emitter: Emitter): void {
  const [, set] = useState(0);
  const seen = emitter.version;
  useEffect(() => {
    // Something may have happened between rendering and now.
    if (emitter.version !== seen) set((n) => n + 1);
    return emitter.subscribe(() => set((n) => n + 1));
  }, [emitter]);
}
