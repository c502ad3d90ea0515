/*
 * Suspects: an event that ends every process that publishes it, an innocent one, and processes that are also killed for other reasons.
 *
 * A lease that ran out counts as lost; SUSP of them make an event suspicious. A suspicious event is published beside no other, after that was
 * written down. A publish is written down as one that counts only if the destination has acknowledged another event to this life of the process;
 * from then on only a claim that was lost after that counts, and MAXL of them make the event DEAD.
 *
 * Claims (assertions):
 *   S1  an event is declared DEAD only when MAXL processes died between the writing down and the outcome of a publish of it
 *   S2  two suspicious events are never out at once in one process
 *   S3  the innocent event is never declared DEAD while fewer than MAXL processes were killed for other reasons, in whatever moment, or by a
 *       killer that is not suspicious yet, each after the destination had acknowledged something to it
 *   S4  the killer is declared DEAD in the end, if it is the reason of all further deaths (checked as: not both DONE)
 *
 * Switches:
 *   KILL           deaths for other reasons, at any moment (budget)
 *   MUT_UNWRITTEN  the publish of a suspect is not written down, every lost claim counts, as before
 *   MUT_TOGETHER   suspicious events are published beside each other
 *   MUT_KEPT       a claim keeps the note of the claim before it
 *   MUT_UNPROVEN   a death counts although the destination has acknowledged nothing: it may hang
 */
#ifndef KILL
#define KILL 2
#endif
#define SUSP 2          /* lost claims that make an event suspicious */
#define MAXL 3          /* lost claims after that, which end it      */
#define E 2             /* event 0 is the killer                      */

byte lost[E];           /* lost_claims                                */
bool begun[E];          /* the note: lost_claims is negative          */
bool leased[E], ended[E], dead[E], done[E];
byte hangs = MAXL;      /* lives in which the destination hangs, beyond the budget of kills */
byte alone[E];          /* truth: deaths during the publish of it alone  */
byte kills = KILL;
byte killed;            /* deaths that are nobody's fault: for another reason, or by the killer before it was suspicious */

/* what one life of the process holds; it is forgotten when it dies */
bool mine[E], out[E], written[E];
bool acked;             /* the destination has acknowledged another event to this life */

inline die() {
  atomic {
    byte k = 0;
    do
    :: k < E ->
       if :: out[k] && written[k] && lost[k] >= SUSP -> alone[k]++ :: else fi;
       mine[k] = false; out[k] = false; written[k] = false; k++
    :: else -> break
    od;
    acked = false
  }
}

inline claim(e) {
  atomic {
    leased[e] && !mine[e] && !ended[e] ->          /* its lease ran out: the holder is dead */
#ifdef MUT_UNWRITTEN
      lost[e]++;
#else
      if
      :: lost[e] < SUSP || begun[e] -> lost[e]++
      :: else
      fi;
#endif
#ifndef MUT_KEPT
      begun[e] = false;
#endif
      mine[e] = true;
      if
      :: lost[e] >= SUSP + MAXL ->
         ended[e] = true; dead[e] = true; mine[e] = false;
         assert(alone[e] >= MAXL);                                  /* S1 */
         assert(e == 0 || killed >= MAXL)                           /* S3 */
      :: else
      fi
  }
}

inline busy(yes) {
  yes = (lost[0] >= SUSP && out[0]) || (lost[1] >= SUSP && out[1])
}

active proctype process_() {
  byte e;
  bool b;
  leased[0] = true; leased[1] = true;              /* inserted hot, and the first holder died */
  do
  :: ended[0] && ended[1] -> break
  :: atomic { kills > 0 -> kills--;                                /* for another reason */
       if :: acked -> killed++ :: else fi };
     die()
  :: atomic { !acked && hangs > 0 -> hangs--; kills++ }            /* it hangs, and the process is killed for that once more */
  :: atomic { !acked -> acked = true }                             /* another event */
  :: claim(0)
  :: claim(1)
  :: /* write down, or begin */
     if :: e = 0 :: e = 1 fi;
     busy(b);
     if
     :: mine[e] && !out[e] && !ended[e] ->
        if
#ifndef MUT_TOGETHER
        :: lost[e] >= SUSP && b -> skip                             /* another suspect is out */
#endif
        :: lost[e] >= SUSP && (!b
#ifdef MUT_TOGETHER
           || true
#endif
           ) ->
#ifndef MUT_UNWRITTEN
#ifdef MUT_UNPROVEN
           begun[e] = true; written[e] = true;
#else
           begun[e] = acked; written[e] = acked;                    /* else it waits longer, and is tried all the same */
#endif
#endif
           out[e] = true;
           assert(!(out[0] && out[1] && lost[0] >= SUSP && lost[1] >= SUSP))  /* S2 */
        :: lost[e] < SUSP -> out[e] = true
        fi
     :: else
     fi
  :: out[0] && !ended[0] ->                                         /* the killer kills */
     atomic { if :: acked && lost[0] < SUSP -> killed++ :: else fi };
     die()
  :: out[1] && !ended[1] ->                                         /* the innocent is acknowledged and marked */
     atomic { out[1] = false; mine[1] = false; ended[1] = true; done[1] = true; written[1] = false }
  od;
  assert(dead[0] && !done[0])                                       /* S4 */
}
