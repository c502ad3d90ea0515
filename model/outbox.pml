/* The outbox: events are inserted already leased to the process that wrote them (hot path), the poller claims what is free, a
 * claim number that its holder chose fences guesses, DONE is a fact that anybody may write, events of one key keep their order.
 *
 * One process of guarded commands stands for the whole world, so that every interleaving of the nodes, the database's clock and
 * the network is visited. Every fault has a budget, so every run ends, and the last block judges what "eventually" means.
 *
 * Claims:
 *   P1  what is published was committed
 *   P2  first copies leave in the order of the key (ORDERED); nothing later is out already (P2b)
 *   P3  copies beyond the first are paid for by faults that may cause one
 *   P4  at the end every committed event was accepted, is DEAD or DISCARDED, or waits behind a DEAD one of its key
 *   P5  DONE is final
 *   P6  a guess changes no other life of a row than the one that was claimed
 *
 * Switches:
 *   ORDERED      all events have one key
 *   SKIPDEAD     a DEAD event does not block its key
 *   RETENTION    finished rows are deleted
 *   COLLECT=n    the janitor collects the idle key row, n times
 *   DISCARD=n    an operator discards n events
 *   FAILOVER     a replica without the last transaction is promoted, once
 *   AGAIN=n      rows are deleted when they are done, and n times an event is published again under its old id (not with ORDERED)
 *   MUT_*        one deliberate mistake; the checker must object
 */
#ifndef N
#define N 2            /* nodes   */
#endif
#ifndef E
#define E 3            /* events  */
#endif
#ifndef CRASH
#define CRASH 1
#endif
#ifndef EXPIRE
#define EXPIRE 1       /* leases that run out while their holder lives (zombies) */
#endif
#ifndef FAIL
#define FAIL 1         /* publish refused by the broker */
#endif
#ifndef LOSTACK
#define LOSTACK 1      /* accepted, but the ack never reaches the publisher */
#endif
#ifndef LATE
#define LATE 1         /* publisher gave up, the record is accepted later */
#endif
#ifndef ROLLB
#define ROLLB 1
#endif
#ifndef UNK
#define UNK 1          /* COMMIT succeeded, its answer was lost */
#endif
#ifndef MAXA
#define MAXA 3         /* failed attempts until DEAD */
#endif
#ifndef REDRIVE
#define REDRIVE 1
#endif

#ifndef AGAIN
#define AGAIN 0
#endif
#if AGAIN>0
#define FINISHED GONE
#else
#define FINISHED DONE
#endif

#define ABSENT 0
#define OPEN   1   /* inserted, transaction not finished */
#define NEW    2   /* NEW or RETRY */
#define DONE   3
#define DEAD   4
#define GONE   5   /* deleted by retention */
#define DISC   6   /* discarded by the operator */
#ifndef COLLECT
#define COLLECT 0      /* how often the janitor may collect the key row */
#endif
#ifndef DISCARD
#define DISCARD 0
#endif

#if defined(ORDERED) && !defined(MUT_NOLOCK)
#define G_ONEWRITER && p_st[0]==0 && p_st[1]==0
#else
#define G_ONEWRITER
#endif
#if defined(MUT_BLINDHOT) || defined(MUT_KEEPLANE)
#define G_BLIND || true
#else
#define G_BLIND
#endif
#ifdef MUT_WATERMARK
#define G_WM && e>=wm
#else
#define G_WM
#endif
#ifdef MUT_SKIPRECENT
/* knows what this node has in flight, and nothing of the others */
#define G_TRACK && !IN(hq[n],e) && !IN(am[n],e)
#else
#define G_TRACK
#endif
#ifdef MUT_UNFENCED
#define G_UNF || (st[e]!=GONE && st[e]!=ABSENT)
#else
#define G_UNF
#endif

/* ---- database ---- */
byte st[E]; byte cno[E]; bit leased[E]; byte att[E];
byte tok[E];              /* claim numbers given out for this id: whoever claims chooses one that never was */
byte life[E];             /* how often a row with this id was deleted and inserted again */
byte nextid;              /* next id / per-key sequence */
/* ---- facts, which nobody in the model can see ---- */
bit committed[E]; byte copies[E]; byte late[E];
byte faults;              /* faults spent that may each cost one duplicate */
byte wm;                  /* watermark of the MUT_WATERMARK poller */
/* ---- node memory ---- */
byte p_st[N]; byte p_e[N]; bit p_hot[N]; byte p_c[N];
byte hq[N];               /* hot queue / lane, bit set of events             */
byte hc[N*E]; byte hl[N*E]; /* number of each claim in it, and life of the row */
byte w_st[N]; byte w_e[N]; byte w_c[N]; byte w_l[N];
#ifdef ORDERED
bit c_st[N];              /* a claim is between its statements               */
#endif
byte am[N];               /* acked by the broker, not yet marked DONE        */
byte ack[N];              /* bit set: this node itself saw the ack           */
/* ---- budgets ---- */
byte b_crash=CRASH, b_exp=EXPIRE, b_fail=FAIL, b_lost=LOSTACK, b_late=LATE;
byte b_rb=ROLLB, b_unk=UNK, b_red=REDRIVE, b_col=COLLECT, b_dis=DISCARD;
#if AGAIN>0
byte b_again=AGAIN;
#endif
#ifdef FAILOVER
byte b_fo=1;
#endif
bit kex;                  /* the key row exists (committed or not)           */
bit opened[E];            /* this event created the key row                  */
bit jsnap;                /* the janitor has seen no open row of the key  */
byte resc=255;            /* MUT_RESCUE snapshot */

#define BIT(e) (1<<(e))
#define IN(s,e) (((s)>>(e))&1)
#define HOT(n,e) ((n)*E+(e))
#define HOLDS(n,e,c) ((w_st[n]!=0 && w_e[n]==(e) && w_c[n]==(c)) || (IN(hq[n],e) && hc[HOT(n,e)]==(c)) || (IN(am[n],e)))

/* a claim number that no claim of this id ever had */
#define FRESH(e) tok[e]++; cno[e]=tok[e]

/* somebody alive has the row's current claim in its memory */
#define HELD(e) (HOLDS(0,e,cno[e]) || HOLDS(1,e,cno[e]) || \
   (p_st[0]==1 && p_e[0]==(e)) || (p_st[1]==1 && p_e[1]==(e)))

inline accept(e) {
  assert(committed[e]);                       /* P1: no ghost event */
#ifdef ORDERED
  if
  :: copies[e]==0 ->
     i = 0;
     do
     :: i < e ->                               /* P2: first copies in key order */
#ifdef SKIPDEAD
        assert(!committed[i] || copies[i]>0 || st[i]==DEAD || st[i]==DISC);
#else
        assert(!committed[i] || copies[i]>0 || st[i]==DISC);
#endif
        i++
     :: else -> break
     od;
#ifndef SKIPDEAD
     i = e+1;                                  /* P2b: nothing later is out already */
     do :: i<E ->                              /* once there were faults, a discarded event is outside the promise */
        assert(copies[i]==0 || (st[e]==DISC && faults>0)); i++
     :: else -> break od
#endif
  :: else
  fi;
#endif
  copies[e]++;
  assert(copies[e] <= 1 + life[e] + faults)   /* P3: duplicates bounded by faults */
}

/* predecessors of e finished, as one fresh DB statement sees it */
inline predDone(e, r) {
  r = 1;
#ifdef ORDERED
#ifndef MUT_NOHEAD
  i = 0;
  do
  :: i < e ->
     if
     :: st[i]==DONE || st[i]==GONE || st[i]==ABSENT || st[i]==OPEN || st[i]==DISC -> skip  /* OPEN is invisible */
#ifdef SKIPDEAD
     :: st[i]==DEAD -> skip
#endif
     :: else -> r = 0
     fi; i++
  :: else -> break
  od
#endif
#endif
}

inline markDone(n, e) {
#ifdef MUT_FENCEDDONE
  /* DONE fenced as well: safe, and costs duplicates */
  if :: st[e]==NEW && IN(am[n],e) -> st[e]=FINISHED; leased[e]=0 :: else fi;
#else
  if :: st[e]==NEW || st[e]==DEAD -> st[e]=FINISHED; leased[e]=0 :: else fi;
#endif
  am[n] = am[n] & ~BIT(e)
}

/* the lane stops: give every queued claim back (fenced) and forget it */
inline dropLane(n) {
  skip;
#ifdef ORDERED
#ifndef MUT_KEEPLANE
  i = 0;
  do
  :: i < E ->
     if
     :: IN(hq[n],i) ->
        if :: st[i]==NEW && cno[i]==hc[HOT(n,i)] && leased[i] -> leased[i]=0 :: else fi;
        hc[HOT(n,i)]=0
     :: else
     fi; i++
  :: else -> break
  od;
  hq[n]=0
#endif
#endif
}

active proctype sys() {
  byte i; byte r; byte n; byte e;
  do
  /* ---------- producer ---------- */
  :: atomic { nextid < E ->
      if :: n=0 :: n=1 fi;
      if
      :: (p_st[n]==0 G_ONEWRITER) ->   /* key-row lock serialises the key */
         e = nextid; nextid++;
         st[e]=OPEN; p_st[n]=1; p_e[n]=e;
#ifdef MUT_SKIPRECENT
         p_hot[n]=1; FRESH(e); p_c[n]=cno[e]; leased[e]=0; /* hot path without a claim */
#else
#ifdef ORDERED
         /* pre-claim only when the predecessor is ours or known acked */
         r = 0; opened[e] = !kex;
         if
         :: !kex -> r=1
         :: else ->
            if
            :: e>0 && (IN(ack[n],e-1) || IN(hq[n],e-1) || (w_st[n]==1 && w_e[n]==e-1)) -> r=1
            :: else
            fi
         fi;
#ifdef MUT_BLINDHOT
         r = 1;
#endif
#else
         r = 1;
#endif
         if
         :: r==1 -> p_hot[n]=1; FRESH(e); p_c[n]=cno[e]; leased[e]=1
         :: p_hot[n]=0; cno[e]=0; leased[e]=0    /* no queue slot: cold insert */
         fi;
         kex=1;
#endif
#ifdef MUT_EARLY
         hq[n]=hq[n]|BIT(e); hc[HOT(n,e)]=cno[e]; p_hot[n]=0
#endif
      :: else
      fi; r=0 }
#if AGAIN>0
  :: atomic { b_again>0 && (st[0]==GONE || st[E-1]==GONE) && (p_st[0]==0 || p_st[1]==0) ->
      if :: st[0]==GONE -> e=0 :: st[E-1]==GONE -> e=E-1 fi;
      if :: p_st[0]==0 -> n=0 :: p_st[1]==0 -> n=1 fi;
      b_again--; st[e]=OPEN; att[e]=0; life[e]++; p_st[n]=1; p_e[n]=e;
#ifdef MUT_COUNTER
      tok[e]=0;                                  /* the numbers of each row start at 1 */
#endif
      if
      :: p_hot[n]=1; FRESH(e); p_c[n]=cno[e]; leased[e]=1
      :: p_hot[n]=0; cno[e]=0; leased[e]=0
      fi; e=0; n=0 }
#endif
  :: atomic { (p_st[0]==1 || p_st[1]==1) ->
      if :: p_st[0]==1 -> n=0 :: p_st[1]==1 -> n=1 fi;
      e = p_e[n];
      if
      :: st[e]=NEW; committed[e]=1;                       /* commit, answer seen */
         if :: p_hot[n] -> hq[n]=hq[n]|BIT(e); hc[HOT(n,e)]=p_c[n]; hl[HOT(n,e)]=life[e] :: else fi
      :: b_unk>0 -> b_unk--; st[e]=NEW; committed[e]=1    /* commit, answer lost */
      :: b_rb>0 -> b_rb--; st[e]=ABSENT; leased[e]=0; cno[e]=0;
         if :: opened[e] -> kex=0; opened[e]=0 :: else fi;
#if defined(ORDERED) && !defined(MUT_NOLOCK)
         nextid--                                          /* dense sequence */
#endif
      fi;
      p_st[n]=0; p_e[n]=0; p_hot[n]=0; p_c[n]=0; e=0; n=0 }
  /* ---------- worker: take from the hot queue ---------- */
  :: atomic { ((hq[0]!=0 && w_st[0]==0) || (hq[1]!=0 && w_st[1]==0)) ->
      if :: hq[0]!=0 && w_st[0]==0 -> n=0 :: hq[1]!=0 && w_st[1]==0 -> n=1 fi;
#ifdef ORDERED
      e=0; do :: !IN(hq[n],e) -> e++ :: else -> break od;  /* lane order */
      if
      :: (opened[e] || (e>0 && IN(ack[n],e-1)) G_BLIND) -> hq[n]=hq[n]&~BIT(e); w_st[n]=1; w_e[n]=e;
           w_c[n]=hc[HOT(n,e)]; w_l[n]=hl[HOT(n,e)]; hc[HOT(n,e)]=0; hl[HOT(n,e)]=0
      :: else -> dropLane(n)
      fi;
#else
      e=0;
      do :: e<E-1 -> e++ :: break od;
      if
      :: IN(hq[n],e) -> hq[n]=hq[n]&~BIT(e); w_st[n]=1; w_e[n]=e;
           w_c[n]=hc[HOT(n,e)]; w_l[n]=hl[HOT(n,e)]; hc[HOT(n,e)]=0; hl[HOT(n,e)]=0
      :: else
      fi;
#endif
      e=0; n=0 }
  /* ---------- poller claim ---------- */
#ifdef ORDERED
  /* in two steps, as it takes several statements: the key is seen to have a head that may be claimed ... */
  :: atomic { (w_st[0]==0 && !c_st[0]) || (w_st[1]==0 && !c_st[1]) ->
      if :: w_st[0]==0 && !c_st[0] -> n=0 :: w_st[1]==0 && !c_st[1] -> n=1 fi;
      e=0; do :: e<E-1 -> e++ :: break od;
      predDone(e, r);
      if :: (st[e]==NEW && !leased[e] && r==1) -> c_st[n]=1 :: else fi; e=0; n=0; r=0 }
  /* ... and the first open row is locked, if it still is the head then */
  :: atomic { (c_st[0] || c_st[1]) ->
      if :: c_st[0] -> n=0 :: c_st[1] -> n=1 fi;
      c_st[n]=0;
#ifdef MUT_NOHEAD
      e=0; do :: e<E-1 -> e++ :: break od;
#else
      e=0; do :: e<E-1 && st[e]!=NEW -> e++ :: else -> break od;
#endif
#ifdef MUT_STALEHEADS
      r=1;
#else
      predDone(e, r);
#endif
      if
      :: (st[e]==NEW && !leased[e] && r==1 && w_st[n]==0) -> FRESH(e); leased[e]=1; w_st[n]=1; w_e[n]=e; w_c[n]=cno[e]; w_l[n]=life[e]
      :: else
      fi; e=0; n=0; r=0; i=0 }
#else
  :: atomic { (w_st[0]==0 || w_st[1]==0) ->
      if :: w_st[0]==0 -> n=0 :: w_st[1]==0 -> n=1 fi;
      e=0; do :: e<E-1 -> e++ :: break od;
      predDone(e, r);
      if
      :: (st[e]==NEW && !leased[e] && r==1 G_WM G_TRACK) -> FRESH(e); leased[e]=1; w_st[n]=1; w_e[n]=e; w_c[n]=cno[e]; w_l[n]=life[e];
#ifdef MUT_WATERMARK
         wm=e+1;
#endif
#ifdef MUT_SKIPRECENT
         leased[e]=1;
#endif
      :: else
      fi; e=0; n=0; r=0 }
#endif
  /* ---------- publish ---------- */
  :: atomic { (w_st[0]==1 || w_st[1]==1) ->
      if :: w_st[0]==1 -> n=0 :: w_st[1]==1 -> n=1 fi;
      e=w_e[n];
#ifdef MUT_MARKFIRST
      if :: st[e]==NEW && cno[e]==w_c[n] -> st[e]=FINISHED; leased[e]=0 :: else fi;
      w_st[n]=4;
#else
      if
      :: accept(e); ack[n]=ack[n]|BIT(e); am[n]=am[n]|BIT(e);      /* ack seen   */
         w_st[n]=0; w_e[n]=0; w_c[n]=0; w_l[n]=0
      :: b_fail>0 -> b_fail--; w_st[n]=3                            /* refused    */
      :: b_lost>0 -> b_lost--; faults++; accept(e); w_st[n]=3       /* ack lost   */
      :: b_late>0 -> b_late--; faults++; late[e]++; w_st[n]=3       /* gave up    */
      fi;
#endif
      e=0; n=0; i=0 }
#ifdef MUT_MARKFIRST
  :: atomic { (w_st[0]==4 || w_st[1]==4) ->
      if :: w_st[0]==4 -> n=0 :: w_st[1]==4 -> n=1 fi;
      e=w_e[n]; accept(e); w_st[n]=0; w_e[n]=0; w_c[n]=0; w_l[n]=0; e=0; n=0; i=0 }
#endif
  :: atomic { (late[0]>0 || late[1]>0 || late[E-1]>0) ->
      if :: late[0]>0 -> e=0 :: late[1]>0 -> e=1 :: late[E-1]>0 -> e=E-1 fi;
      late[e]--; accept(e); e=0; i=0 }
  /* ---------- flush marks ---------- */
  :: atomic { (am[0]!=0 || am[1]!=0) ->
      if :: am[0]!=0 -> n=0 :: am[1]!=0 -> n=1 fi;
      e=0;
      do
      :: e<E -> if :: IN(am[n],e) -> markDone(n,e) :: else fi; e++
      :: else -> break
      od; e=0; n=0 }
  /* ---------- failed attempt: RETRY / DEAD, fenced ---------- */
  :: atomic { (w_st[0]==3 || w_st[1]==3) ->
      if :: w_st[0]==3 -> n=0 :: w_st[1]==3 -> n=1 fi;
      e=w_e[n];
      if
      :: ((st[e]==NEW && cno[e]==w_c[n]) G_UNF) -> assert(st[e]!=DONE); /* P5: DONE is final */
            assert(w_l[n]==life[e]);                                          /* P6 */
            att[e]++; leased[e]=0;
            if :: att[e]>=MAXA -> st[e]=DEAD :: else -> st[e]=NEW fi
      :: else
      fi;
      w_st[n]=0; w_e[n]=0; w_c[n]=0; w_l[n]=0; dropLane(n); e=0; n=0; i=0 }
  /* ---------- clock: a lease runs out ---------- */
  :: atomic { true ->
      e=0; do :: e<E-1 -> e++ :: break od;
      if
      :: leased[e] && (st[e]==NEW || st[e]==OPEN) && !HELD(e) -> leased[e]=0
      :: leased[e] && (st[e]==NEW || st[e]==OPEN) && HELD(e) && b_exp>0 ->
           b_exp--; faults++; leased[e]=0
      :: else
      fi; e=0 }
  /* ---------- crash ---------- */
  :: atomic { b_crash>0 ->
      b_crash--; faults++;
      if :: n=0 :: n=1 fi;
      if
      :: p_st[n]==1 -> e=p_e[n];
         if
         :: st[e]=ABSENT; leased[e]=0; cno[e]=0;
            if :: opened[e] -> kex=0; opened[e]=0 :: else fi;
#if defined(ORDERED) && !defined(MUT_NOLOCK)
            nextid--
#endif
         :: st[e]=NEW; committed[e]=1          /* died inside COMMIT */
         fi
      :: else
      fi;
      p_st[n]=0; p_e[n]=0; p_hot[n]=0; p_c[n]=0; hq[n]=0; am[n]=0; ack[n]=0;
      i=0; do :: i<E -> hc[HOT(n,i)]=0; hl[HOT(n,i)]=0; i++ :: else -> break od; i=0;
      w_st[n]=0; w_e[n]=0; w_c[n]=0; w_l[n]=0;
#ifdef ORDERED
      c_st[n]=0;
#endif
      e=0; n=0 }
  /* ---------- retention ---------- */
#ifdef RETENTION
  :: atomic { true ->
      e=0; do :: e<E-1 -> e++ :: break od;
      if
      :: st[e]==DONE -> st[e]=GONE
#ifdef MUT_CLEANALL
      :: st[e]==DEAD || st[e]==NEW -> st[e]=GONE
#endif
      :: else
      fi; e=0 }
#endif
  /* ---------- janitor collects the key row ---------- */
#if COLLECT>0
  :: atomic { b_col>0 && kex && !jsnap ->          /* statement snapshot: no open row of the key visible */
      r=1; i=0;
      do :: i<E -> if :: st[i]==NEW || st[i]==DEAD -> r=0 :: else fi; i++ :: else -> break od;
      if :: r==1 -> jsnap=1; b_col-- :: else fi; i=0; r=0 }
  :: atomic { jsnap && p_st[0]==0 && p_st[1]==0 ->  /* row lock obtained: no transaction holds the key row */
      jsnap=0;
#ifdef MUT_JANITOR
      kex=0                                          /* trusts the snapshot from before the lock */
#else
      r=1; i=0;                                      /* a new statement, after the lock: is a row open? */
      do :: i<E -> if :: st[i]==NEW || st[i]==DEAD -> r=0 :: else fi; i++ :: else -> break od;
      if :: r==1 -> kex=0 :: else fi; i=0; r=0
#endif
      }
#endif
#if DISCARD>0
  :: atomic { b_dis>0 ->
      e=0; do :: e<E-1 -> e++ :: break od;
      if
#ifdef MUT_DISCANY
      :: st[e]==NEW || st[e]==DEAD -> b_dis--; st[e]=DISC; cno[e]=0; leased[e]=0
#else
      :: (st[e]==NEW && !leased[e]) || st[e]==DEAD -> b_dis--; st[e]=DISC; cno[e]=0; leased[e]=0
#endif
      :: else
      fi; e=0 }
#endif
#ifdef FAILOVER
  /* the promoted replica lacks the newest event of the key, which was done, and what that event wrote into the key row;
   * processes remember what they saw */
  :: atomic { b_fo>0 && nextid>0 && nextid<E+1 && p_st[0]==0 && p_st[1]==0 && am[0]==0 && am[1]==0 &&
       hq[0]==0 && hq[1]==0 && w_st[0]==0 && w_st[1]==0 && late[0]+late[1]+late[E-1]==0 && st[nextid-1]==DONE ->
      b_fo--; nextid--; e=nextid; st[e]=ABSENT; committed[e]=0; copies[e]=0; cno[e]=0; leased[e]=0; att[e]=0;
      if :: opened[e] -> opened[e]=0; kex=0 :: else fi;
#ifndef MUT_NUMBERS
      /* the number comes again, with another id: acknowledgements count by id and number */
      ack[0]=ack[0]&~BIT(e); ack[1]=ack[1]&~BIT(e);
#endif
      e=0 }
#endif
  /* ---------- operator redrive ---------- */
  :: atomic { b_red>0 && (st[0]==DEAD || st[1]==DEAD || st[E-1]==DEAD) ->
      b_red--;
      if :: st[0]==DEAD -> e=0 :: st[1]==DEAD -> e=1 :: st[E-1]==DEAD -> e=E-1 fi;
      st[e]=NEW; att[e]=0; cno[e]=0; leased[e]=0; e=0 }   /* no claim has number 0 */
#ifdef MUT_RESCUE
  /* two-step rescue that trusts its own snapshot */
  :: atomic { resc==255 ->
      e=0; do :: e<E-1 -> e++ :: break od;
      if :: st[e]==NEW && cno[e]>0 && !leased[e] -> resc=e :: else fi; e=0 }
  :: atomic { resc!=255 -> if :: st[resc]!=GONE && st[resc]!=ABSENT -> assert(st[resc]!=DONE); st[resc]=NEW; leased[resc]=0 :: else fi; resc=255 }
#endif
  /* ---------- quiescent ---------- */
#ifdef ORDERED
#define CLAIMING (c_st[0]+c_st[1])
#else
#define CLAIMING 0
#endif
  :: atomic { (nextid>=E) && CLAIMING==0 && (p_st[0]+p_st[1]+hq[0]+hq[1]+w_st[0]+w_st[1]+am[0]+am[1]+late[0]+late[1]+late[E-1]==0) ->
      /* is any claim or expiry still possible? */
      r=0; n=0; e=0;
      do
      :: e<E ->
         if
         :: st[e]==NEW && leased[e] -> n=1                     /* will expire */
         :: st[e]==NEW && !leased[e] ->
            predDone(e, r);
#ifdef MUT_WATERMARK
            if :: e<wm -> r=0 :: else fi;
#endif
            if :: r==1 -> n=1 :: else fi
         :: else
         fi; e++
      :: else -> break
      od;
      if
      :: n==1 -> n=0; e=0; r=0; i=0
      :: else -> break
      fi }
  od;
  /* P4: once faults stop, every committed event was accepted by the broker,
   * or is DEAD, or waits behind a DEAD row of its key */
  e=0; r=0;
  do
  :: e<E ->
     if
     :: committed[e] && copies[e]==0 ->
        if
        :: st[e]==DEAD -> r=1
        :: st[e]==DISC -> skip
#ifdef ORDERED
#ifndef SKIPDEAD
        :: r==1 && st[e]==NEW -> skip
#endif
#endif
        :: else -> assert(false)
        fi
     :: else ->
        if :: st[e]==DEAD -> r=1 :: else fi
     fi; e++
  :: else -> break
  od
}
