------------------------------- MODULE Group -------------------------------
(* Reconfiguration of one group: the region map, grants, leases, failures.  *)
(* README.md beside this file says what is modelled and how names map to   *)
(* the code.                                                                *)
(*                                                                          *)
(* Steps, in the order of this file:                                        *)
(*  1. a primary writes, records land in the members' windows, the commit   *)
(*     LSN follows, an answer is revealed by the gate;                      *)
(*  2. leases are asked for, granted and run out;                           *)
(*  3. a primary prepares members: they revoke, are cut, and caught up;     *)
(*  4. masters change the map: raise, promote, remove, fill, add;           *)
(*  5. servers take the map for their view, and open regions;               *)
(*  6. processes stop, go on, end and start; memory and devices are lost.   *)
(*                                                                          *)
(* Invariants: OnePrimary (I5), NeverBack (I4, I5, I7), WholeHolds (I7),    *)
(* LateAnswers (I5), SameCut (I6). `Mistake` plants one; "none" plants none. *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
  Servers, Masters,         \* sets of model values
  None,                     \* the absence of a thing
  FirstPrimary,             \* the primary of epoch 1
  FirstMembers,             \* its members, all of them whole and attached
  FirstFilling,             \* spares that are being filled from the beginning
  MinCopies,                \* a group has at least so many members
  MaxLsn, MaxEpoch,         \* bounds of a run
  Lease, Drift,             \* ticks; Drift is what a clock may lose in all.
                            \* With 0 leases take no time: a lease is there
                            \* while the member would grant one
  Kills, CleanStops, Powers, Wipes, Stops,   \* how often each may happen
  Suspect,                  \* whom masters take for lost: "ended", who has
                            \* stopped, ended, or started anew; "opening",
                            \* also who opens; "anybody", at any moment
  Travel,                   \* whether granted leases take time to arrive
  Delay,                    \* whether answers leave long after the gate
  Mistake

VARIABLES
  map,      \* the region map's entry, in the coordinator
  srv,      \* each server: its process, its copy, and what it knows
  mst,      \* each master: the map as it read it, and the reports it has
  shown,    \* what clients have seen: the longest revealed log
  synced,   \* so much of it was on the device of every member
  left      \* faults that may still happen

vars == <<map, srv, mst, shown, synced, left>>

-----------------------------------------------------------------------------
(* Helpers. A log is a sequence; entry n is the epoch that wrote LSN n.     *)

Min(S) == CHOOSE x \in S : \A y \in S : x <= y
Max(S) == CHOOSE x \in S : \A y \in S : x >= y
Prefix(a, k) == SubSeq(a, 1, k)
Common(a, b) ==             \* the length of the longest common prefix
  Max({k \in 0..Min({Len(a), Len(b)}) : \A i \in 1..k : a[i] = b[i]})
IsPrefix(a, b) == Common(a, b) = Len(a)
Comparable(a, b) == IsPrefix(a, b) \/ IsPrefix(b, a)

Zero == [s \in Servers |-> 0]
NoAsk == [s \in Servers |-> None]
Quiet == [to |-> None, left |-> 0]                  \* owes nobody anything
Forgotten ==                                        \* may owe anybody
  IF Lease = 0 THEN Quiet ELSE [to |-> "anybody", left |-> Lease + Drift]
Promise == IF Mistake = "ignore-drift" THEN Lease ELSE Lease + Drift

IsUp(s) == srv[s].up = "up"
Leads(s) == srv[s].view # None
Others(s) == srv[s].view.members \ {s}
Reached(s) == (srv[s].view.members \cup srv[s].view.filling) \ {s}
GrantOf(p) == [peer |-> p, epoch |-> srv[p].view.epoch]
Attached(p, m) == srv[m].grant = GrantOf(p)

(* The highest LSN that every member of its own epoch holds, as the server  *)
(* whose record is r knows by completions.                                  *)
Waits(s, r) ==
  IF Mistake = "stop-waiting"
  THEN {m \in r.view.members \ {s} : IsUp(m)}
  ELSE r.view.members \ {s}
WithCommit(s, r) ==
  IF r.role # "serving" THEN r
  ELSE [r EXCEPT !.commit =
         Max({@, Min({Len(r.log)} \cup {r.done[m] : m \in Waits(s, r)})})]

-----------------------------------------------------------------------------
(* 1. Writes and answers.                                                   *)

Write(p) ==
  /\ IsUp(p) /\ srv[p].role = "serving" /\ Len(srv[p].log) < MaxLsn
  /\ srv' = [srv EXCEPT ![p] =
       WithCommit(p, [@ EXCEPT !.log = Append(@, srv[p].view.epoch)])]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

(* A one-sided write lands and completes. All of the log is on its way to   *)
(* every attached member. The process at either end may be stopped or have  *)
(* ended; only the grant counts. A write that is lost is one that never     *)
(* lands.                                                                   *)
Place(log, lsn, entry) ==
  IF lsn = Len(log) + 1 THEN Append(log, entry) ELSE [log EXCEPT ![lsn] = entry]
Land(p, m) ==
  /\ Leads(p) /\ m \in Reached(p)
  /\ LET lsn == srv[p].done[m] + 1
         renew == Mistake = "renew-by-completion" /\ srv[p].up # "down"
     IN
     /\ lsn <= Len(srv[p].log)
     /\ lsn <= Len(srv[m].log) + 1
     /\ Mistake = "connect-by-name" \/ Attached(p, m)
     /\ srv' = [srv EXCEPT
          ![m].log = Place(@, lsn, srv[p].log[lsn]),
          ![p] = WithCommit(p, [@ EXCEPT
             !.done[m] = lsn,
             !.lease[m] = IF renew THEN Lease ELSE @])]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

(* A flush: all that the copy has is on its device. It matters only while   *)
(* memory may still be lost.                                                *)
SyncedNow(servers, seen) ==
  Max({k \in 0..Len(seen) : \A m \in map.members :
         servers[m].mark >= k /\ Common(servers[m].log, seen) >= k})
Flush(m) ==
  /\ left["power"] + left["wipe"] > 0 /\ IsUp(m) /\ srv[m].mark < Len(srv[m].log)
  /\ srv' = [srv EXCEPT ![m].mark = Len(srv[m].log)]
  /\ synced' = Max({synced, SyncedNow(srv', shown)})
  /\ UNCHANGED <<map, mst, shown, left>>

(* The gate, with the clock at this moment.                                 *)
GateOpen(s) ==
  /\ IsUp(s) /\ srv[s].role = "serving"
  /\ \/ Mistake = "bypass-gate"
     \/ \A m \in Others(s) :
          IF Lease > 0 THEN srv[s].lease[m] > 0
          ELSE IsUp(m) /\ srv[m].ep <= srv[s].view.epoch
Answer(s) == Prefix(srv[s].log, srv[s].commit)

Reveal(s) ==
  /\ GateOpen(s) /\ shown # Answer(s)
  /\ shown' = Answer(s)
  /\ synced' = Max({synced, SyncedNow(srv, shown')})
  /\ UNCHANGED <<map, srv, mst, left>>

(* The gate was passed, and the process may be stopped before the answer    *)
(* leaves. The request had arrived before the clock was read.               *)
PassGate(s) ==
  /\ Delay /\ GateOpen(s) /\ srv[s].answer = None
  /\ srv' = [srv EXCEPT ![s].answer = Answer(s)]
  /\ UNCHANGED <<map, mst, shown, synced, left>>
AnswerLate(s) ==
  /\ IsUp(s) /\ srv[s].answer # None
  /\ srv' = [srv EXCEPT ![s].answer = None]
  /\ shown' = IF Len(srv[s].answer) > Len(shown) THEN srv[s].answer ELSE shown
  /\ UNCHANGED <<map, mst, synced, left>>

-----------------------------------------------------------------------------
(* 2. Leases. `lease[m]` is what is left of the lease from m on the         *)
(* holder's clock, `ask[m]` the same of a granted one that has not arrived: *)
(* both count from when the request was written. `owe` is what a member has *)
(* promised, on its own clock.                                              *)

Grant(m, p) ==
  /\ Lease > 0 /\ IsUp(m) /\ IsUp(p) /\ Leads(p) /\ m \in Others(p)
  /\ srv[m].ep <= srv[p].view.epoch \/ Mistake = "lease-after-revoke"
  /\ srv[p].ask[m] = None /\ srv[p].lease[m] < Lease
  /\ LET to == IF srv[m].owe.left = 0 \/ srv[m].owe.to = p THEN p ELSE "anybody" IN
     srv' = IF Travel
       THEN [srv EXCEPT ![p].ask[m] = Lease, ![m].owe = [to |-> to, left |-> Promise]]
       ELSE [srv EXCEPT ![p].lease[m] = Lease, ![m].owe = [to |-> to, left |-> Promise]]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

Receive(p, m) ==
  /\ IsUp(p) /\ srv[p].ask[m] # None
  /\ srv' = [srv EXCEPT
       ![p].ask[m] = None,
       ![p].lease[m] = IF Mistake = "count-from-receipt" THEN Lease
                       ELSE Max({@, srv[p].ask[m]})]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

(* A moment passes. A clock may miss it, Drift times in all.                *)
Less(n) == IF n = 0 THEN 0 ELSE n - 1
LessAsk(n) ==
  IF n = None THEN None
  ELSE IF n <= 1 /\ Mistake # "count-from-receipt" THEN None
  ELSE Less(n)
LessOwe(o) == IF o.left <= 1 THEN Quiet ELSE [o EXCEPT !.left = @ - 1]
Waiting(s) ==
  \/ srv[s].owe.left > 0
  \/ \E m \in Servers : srv[s].lease[m] > 0 \/ srv[s].ask[m] # None
Tick ==
  /\ \E s \in Servers : Waiting(s)
  /\ \E slow \in SUBSET {s \in Servers : srv[s].slack > 0 /\ Waiting(s)} :
       srv' = [s \in Servers |->
         IF s \in slow THEN [srv[s] EXCEPT !.slack = @ - 1]
         ELSE [srv[s] EXCEPT
           !.lease = [m \in Servers |-> Less(@[m])],
           !.ask = [m \in Servers |-> LessAsk(@[m])],
           !.owe = LessOwe(@)]]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

-----------------------------------------------------------------------------
(* 3. A primary prepares a member: it revokes all earlier grants, ends      *)
(* where the primary's log and its own part, and is written to from there.  *)
(* A spare or returning copy is partial meanwhile.                          *)

Demoted(r) == [r EXCEPT
  !.view = None, !.role = "none", !.done = Zero, !.commit = 0]
Prepare(p, m) ==
  /\ IsUp(p) /\ IsUp(m) /\ Leads(p) /\ m \in Reached(p)
  /\ srv[m].ep <= srv[p].view.epoch /\ ~Attached(p, m)
  /\ m \in srv[p].view.filling =>
       (srv[p].role = "serving" \/ Mistake = "fill-before-serving")
  /\ LET trust == Mistake = "trust-report"
         k == IF trust THEN Min({Len(srv[m].log), Len(srv[p].log)})
              ELSE Common(srv[m].log, srv[p].log)
     IN srv' = [srv EXCEPT
       ![m] = [Demoted(@) EXCEPT
         !.ep = srv[p].view.epoch,
         !.grant = GrantOf(p),
         !.log = IF trust THEN @ ELSE Prefix(@, k),
         !.mark = Min({@, k}),
         !.cut = IF trust THEN @ ELSE srv[p].cut,
         !.status = IF m \in srv[p].view.members THEN @ ELSE "partial"],
       ![p] = WithCommit(p, [@ EXCEPT !.done[m] = k])]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

(* A primary that opens may adopt the log of a member that is ahead. LSNs   *)
(* compare only among copies with the same cut.                             *)
Adopt(p, m) ==
  /\ IsUp(p) /\ IsUp(m) /\ srv[p].role = "opening"
  /\ m \in Others(p) /\ ~Attached(p, m) /\ srv[m].ep <= srv[p].view.epoch
  /\ srv[m].status # "partial" /\ srv[m].cut = srv[p].view.claim.cut
  /\ Len(srv[m].log) > Len(srv[p].log) /\ IsPrefix(srv[p].log, srv[m].log)
  /\ srv' = [srv EXCEPT ![p].log = srv[m].log]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

(* The primary tells a member that it has caught up.                        *)
MakeWhole(p, m) ==
  /\ IsUp(p) /\ IsUp(m) /\ Leads(p) /\ m \in Others(p) /\ Attached(p, m)
  /\ srv[p].role = "serving" \/ Mistake = "fill-before-serving"
  /\ srv[p].done[m] >= srv[p].commit \/ Mistake = "count-early"
  /\ srv[m].status # "whole"
  /\ srv' = [srv EXCEPT ![m].status = "whole"]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

-----------------------------------------------------------------------------
(* 4. Masters. A change is one compare-and-set and raises the epoch.        *)

Seen(k) == mst[k].seen
Change(k, entry) ==
  /\ Mistake = "no-compare" \/ map.epoch = Seen(k).epoch
  /\ Seen(k).epoch < MaxEpoch
  /\ map' = [entry EXCEPT !.epoch = Seen(k).epoch + 1]
  /\ mst' = [mst EXCEPT ![k] = [seen |-> map', reports |-> {}]]

ReadMap(k) ==
  /\ Seen(k) # map
  /\ mst' = [mst EXCEPT ![k] = [seen |-> map, reports |-> {}]]
  /\ UNCHANGED <<map, srv, shown, synced, left>>

Raise(k) ==
  /\ Seen(k).state = "serving"
  /\ LET p == Seen(k).primary IN
     \/ Suspect = "anybody" \/ ~IsUp(p) \/ srv[p].role = "none"
     \/ Suspect = "opening" /\ srv[p].role = "opening"
  /\ Change(k, [Seen(k) EXCEPT !.state = "recovering"])
  /\ UNCHANGED <<srv, shown, synced, left>>

(* A member revokes, then reports. The old primary is a member, too.        *)
Report(k, m) ==
  /\ Seen(k).state = "recovering" /\ m \in Seen(k).members \cup Seen(k).filling \cup Seen(k).last
  /\ IsUp(m) /\ srv[m].ep <= Seen(k).epoch
  /\ \A r \in mst[k].reports : r.from # m
  /\ mst' = [mst EXCEPT ![k].reports = @ \cup
       {[from |-> m, status |-> srv[m].status, cut |-> srv[m].cut, lsn |-> Len(srv[m].log)]}]
  /\ srv' = IF Mistake = "keep-grants" THEN srv
            ELSE [srv EXCEPT ![m] = [Demoted(@) EXCEPT
              !.ep = Seen(k).epoch, !.grant = None]]
  /\ UNCHANGED <<map, shown, synced, left>>

(* The choice. A whole copy of the last epoch opens, any. Without one, and  *)
(* when all members of the last epoch have reported, the highest cut copy   *)
(* opens. A copy that was being filled is a candidate only while it is what *)
(* it was before. The last epoch is that before the last promotion, if the  *)
(* server that was promoted reports that it has never opened.               *)
Higher(a, b) ==
  IF Mistake = "lsn-over-epoch" THEN a.lsn >= b.lsn
  ELSE a.cut > b.cut \/ (a.cut = b.cut /\ a.lsn >= b.lsn)
NeverOpened(cut, status, since) == cut < since /\ status # "partial"
Voters(k) ==
  IF /\ Mistake # "drop-early"
     /\ \E r \in mst[k].reports :
          r.from = Seen(k).primary /\ NeverOpened(r.cut, r.status, Seen(k).since)
  THEN Seen(k).last ELSE Seen(k).members
IsWhole(k, r) ==
  /\ r.from \in Voters(k)
  /\ r.status = "whole" \/ (Mistake = "promote-partial" /\ r.status = "partial")
Chosen(k) ==
  LET reports == mst[k].reports
      wholes == {r \in reports : IsWhole(k, r)}
      all == Voters(k) \subseteq {r.from : r \in reports}
      rest == {r \in reports : r.status # "partial"}
  IN IF wholes # {} THEN wholes
     ELSE IF all \/ Mistake = "open-without-all"
     THEN {r \in rest : \A o \in rest : Higher(r, o)}
     ELSE {}

(* What of `shown` remains when log is chosen, by what is really there:     *)
(* something may be given up only when no voter has a whole copy, and what  *)
(* was synced only when no voter has its device.                            *)
Remains(k, log) ==
  LET old == srv[Seen(k).primary]
      voters == IF NeverOpened(old.cut, old.status, Seen(k).since)
                THEN Seen(k).last ELSE Seen(k).members
      kept == Common(shown, log)
  IN IF \E m \in voters : srv[m].status = "whole" THEN Len(shown)
     ELSE IF \E m \in voters : srv[m].status = "cut" THEN Max({kept, synced})
     ELSE kept
Promote(k) ==
  /\ Seen(k).state = "recovering"
  /\ \E r \in Chosen(k) :
     LET heard == {o.from : o \in mst[k].reports}
         fit == {o.from : o \in {o \in mst[k].reports : o.status # "partial"}}
         members == (Voters(k) \cap fit) \cup {r.from}
         remain == Remains(k, srv[r.from].log)
     IN
     /\ Cardinality(members) >= MinCopies
     /\ Change(k, [Seen(k) EXCEPT
          !.state = "serving",
          !.primary = r.from,
          !.members = members,
          !.filling = (Seen(k).filling \cup (Voters(k) \cap heard)) \ members,
          !.since = Seen(k).epoch + 1,
          !.last = Voters(k),
          !.claim = [status |-> r.status, cut |-> r.cut, lsn |-> r.lsn,
                     member |-> r.from \in Voters(k)]])
     /\ shown' = Prefix(shown, remain)
     /\ synced' = Min({synced, remain})
  /\ UNCHANGED <<srv, left>>

(* The primary has asked for each of these under the epoch that the master  *)
(* has seen.                                                                *)
Asks(k) == LET p == Seen(k).primary IN
  /\ Seen(k).state = "serving" /\ IsUp(p) /\ Leads(p)
  /\ srv[p].view.epoch = Seen(k).epoch
Remove(k, m) ==
  /\ Asks(k) /\ m \in Seen(k).members \ {Seen(k).primary}
  /\ Suspect = "anybody" \/ ~IsUp(m)
  /\ Cardinality(Seen(k).members) > MinCopies
  /\ Change(k, [Seen(k) EXCEPT !.members = @ \ {m}])
  /\ UNCHANGED <<srv, shown, synced, left>>
Fill(k, m) ==
  /\ Asks(k) /\ IsUp(m) /\ m \notin Seen(k).members \cup Seen(k).filling
  /\ Change(k, [Seen(k) EXCEPT !.filling = @ \cup {m}])
  /\ UNCHANGED <<srv, shown, synced, left>>
Add(k, m) ==
  /\ Asks(k) /\ m \in Seen(k).filling
  /\ LET p == Seen(k).primary IN
     \/ Mistake = "count-early"
     \/ Attached(p, m) /\ srv[p].done[m] >= srv[p].commit
  /\ Change(k, [Seen(k) EXCEPT !.filling = @ \ {m}, !.members = @ \cup {m}])
  /\ UNCHANGED <<srv, shown, synced, left>>

-----------------------------------------------------------------------------
(* 5. A server takes a view. A primary that goes on prepares its members    *)
(* again under the new epoch. A new one opens if its copy is still what was *)
(* reported. One that has opened under this promotion before, and was       *)
(* started anew, opens again if its copy is whole.                          *)

ClaimHolds(r) ==
  \/ Mistake = "open-unchecked"
  \/ /\ r.status = map.claim.status
     /\ \/ map.claim.status = "whole" /\ map.claim.member
        \/ r.cut = map.claim.cut /\ Len(r.log) = map.claim.lsn
View == [epoch |-> map.epoch, since |-> map.since,
         members |-> map.members, filling |-> map.filling, claim |-> map.claim]
Taken(s, r) ==
  LET mine == map.state = "serving" /\ map.primary = s
      goes == mine /\ r.view # None /\ r.view.since = map.since
      opens == mine /\ IF r.cut < map.since THEN ClaimHolds(r) ELSE r.status = "whole"
  IN IF goes THEN [r EXCEPT !.ep = map.epoch, !.view = View, !.done = Zero]
     ELSE IF opens THEN [Demoted(r) EXCEPT
       !.ep = map.epoch, !.view = View, !.role = "opening", !.cut = map.since,
       !.grant = IF Mistake = "keep-grants" THEN @ ELSE None,
       !.owe = IF map.claim.member THEN @ ELSE Forgotten]
     ELSE [Demoted(r) EXCEPT !.ep = map.epoch, !.grant = None]
TakeView(s) ==
  /\ IsUp(s) /\ srv[s].ep < map.epoch
  /\ Leads(s) \/ (map.primary = s /\ map.state = "serving")
  /\ srv' = [srv EXCEPT ![s] = WithCommit(s, Taken(s, @))]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

(* It serves when the leases that it gave have run out, and all members are *)
(* equal.                                                                   *)
Serve(s) ==
  /\ IsUp(s) /\ srv[s].role = "opening"
  /\ srv[s].owe.left = 0 \/ Mistake = "serve-before-lease"
  /\ \/ Mistake = "serve-before-equal"
     \/ \A m \in Others(s) : Attached(s, m) /\ srv[s].done[m] = Len(srv[s].log)
  /\ srv' = [srv EXCEPT ![s].role = "serving", ![s].status = "whole",
                        ![s].commit = Len(srv[s].log)]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

-----------------------------------------------------------------------------
(* 6. Failures.                                                             *)

Use(kind) == left[kind] > 0 /\ left' = [left EXCEPT ![kind] = @ - 1]

(* What a process had in its own memory is gone. Its view and `done` stay   *)
(* until it starts again: what it had begun to write may still land.        *)
Ended(r) == [r EXCEPT !.up = "down", !.lease = Zero, !.ask = NoAsk,
                      !.owe = Quiet, !.answer = None]

Kill(s) ==
  /\ srv[s].up # "down" /\ Use("kill")
  /\ srv' = [srv EXCEPT ![s] = Ended(@)]
  /\ UNCHANGED <<map, mst, shown, synced>>
(* A clean stop hands the leases back.                                      *)
CleanStop(s) ==
  /\ IsUp(s) /\ Use("clean")
  /\ srv' = [m \in Servers |->
       IF m = s THEN Ended(srv[s])
       ELSE IF IsUp(m) /\ srv[m].owe.to = s THEN [srv[m] EXCEPT !.owe = Quiet]
       ELSE srv[m]]
  /\ UNCHANGED <<map, mst, shown, synced>>
(* The windows are lost: what was flushed remains.                          *)
Power(s) ==
  /\ Use("power")
  /\ srv' = [srv EXCEPT ![s] = [Demoted(Ended(@)) EXCEPT
       !.log = Prefix(@, srv[s].mark), !.grant = None,
       !.status = IF @ = "whole" THEN "cut" ELSE @]]
  /\ UNCHANGED <<map, mst, shown, synced>>
(* The device is lost, too, and an empty one takes its place.               *)
Wipe(s) ==
  /\ Use("wipe")
  /\ srv' = [srv EXCEPT ![s] = [Demoted(Ended(@)) EXCEPT
       !.log = <<>>, !.mark = 0, !.cut = 0, !.grant = None, !.status = "partial"]]
  /\ UNCHANGED <<map, mst, shown, synced>>
Stop(s) ==
  /\ IsUp(s) /\ Use("stop")
  /\ srv' = [srv EXCEPT ![s].up = "stopped"]
  /\ UNCHANGED <<map, mst, shown, synced>>
Continue(s) ==
  /\ srv[s].up = "stopped"
  /\ srv' = [srv EXCEPT ![s].up = "up"]
  /\ UNCHANGED <<map, mst, shown, synced, left>>
(* A server that starts revokes all its old windows, reads the map, and has *)
(* forgotten what it promised.                                              *)
Start(s) ==
  /\ srv[s].up = "down"
  /\ srv' = [srv EXCEPT ![s] = Taken(s, [Demoted(@) EXCEPT
       !.up = "up", !.grant = None,
       !.owe = IF Mistake = "forget-promises" THEN Quiet ELSE Forgotten])]
  /\ UNCHANGED <<map, mst, shown, synced, left>>

-----------------------------------------------------------------------------

FirstClaim == [status |-> "whole", cut |-> 0, lsn |-> 0, member |-> TRUE]
FirstMap == [epoch |-> 1, state |-> "serving", primary |-> FirstPrimary,
  members |-> FirstMembers, filling |-> FirstFilling, since |-> 1,
  last |-> FirstMembers, claim |-> FirstClaim]
FirstServer(s) == [
  up |-> "up", ep |-> 1,
  view |-> IF s = FirstPrimary
    THEN [epoch |-> 1, since |-> 1, members |-> FirstMembers,
          filling |-> FirstFilling, claim |-> FirstClaim] ELSE None,
  role |-> IF s = FirstPrimary THEN "serving" ELSE "none",
  log |-> <<>>, mark |-> 0,
  cut |-> IF s \in FirstMembers THEN 1 ELSE 0,
  status |-> IF s \in FirstMembers THEN "whole" ELSE "partial",
  grant |-> IF s \in FirstMembers \ {FirstPrimary}
    THEN [peer |-> FirstPrimary, epoch |-> 1] ELSE None,
  done |-> Zero, commit |-> 0,
  lease |-> Zero, ask |-> NoAsk, owe |-> Quiet, slack |-> Drift, answer |-> None]

Init ==
  /\ map = FirstMap
  /\ srv = [s \in Servers |-> FirstServer(s)]
  /\ mst = [k \in Masters |-> [seen |-> FirstMap, reports |-> {}]]
  /\ shown = <<>> /\ synced = 0
  /\ left = [kill |-> Kills, clean |-> CleanStops, power |-> Powers, wipe |-> Wipes, stop |-> Stops]

Next ==
  \/ Tick
  \/ \E s \in Servers :
       \/ Write(s) \/ Flush(s) \/ Reveal(s) \/ PassGate(s) \/ AnswerLate(s)
       \/ TakeView(s) \/ Serve(s)
       \/ Kill(s) \/ CleanStop(s) \/ Power(s) \/ Wipe(s) \/ Stop(s) \/ Continue(s) \/ Start(s)
       \/ \E m \in Servers \ {s} :
            Land(s, m) \/ Grant(m, s) \/ Receive(s, m)
            \/ Prepare(s, m) \/ Adopt(s, m) \/ MakeWhole(s, m)
  \/ \E k \in Masters :
       \/ ReadMap(k) \/ Raise(k) \/ Promote(k)
       \/ \E m \in Servers : Report(k, m) \/ Remove(k, m) \/ Fill(k, m) \/ Add(k, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must always hold.                                                   *)

(* I5: at most one server could answer at this moment.                      *)
OnePrimary == Cardinality({s \in Servers : GateOpen(s)}) <= 1

(* I4, I5, I7: whoever could answer has all that clients have seen.         *)
NeverBack == \A s \in Servers : GateOpen(s) => IsPrefix(shown, Answer(s))

(* I7: so has each whole member, and may be chosen.                         *)
WholeHolds == \A m \in map.members :
  srv[m].status = "whole" => IsPrefix(shown, srv[m].log)

(* I5: what passed the gate and leaves late fits what was seen meanwhile.   *)
LateAnswers == \A s \in Servers : srv[s].answer # None =>
  IF Mistake = "stale-clock"  \* a request that came after the clock was read
  THEN IsUp(s) /\ srv[s].role = "serving" => IsPrefix(shown, Answer(s))
  ELSE Comparable(shown, srv[s].answer)

(* I6: LSNs compare among copies with the same cut.                         *)
SameCut == \A a, b \in Servers :
  srv[a].cut = srv[b].cut => Comparable(srv[a].log, srv[b].log)

(* Where all servers but the first primary begin alike.                     *)
Symmetry == Permutations(Servers \ {FirstPrimary}) \cup Permutations(Masters)
MasterSymmetry == Permutations(Masters)
=============================================================================
