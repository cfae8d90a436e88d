from .answers import AnswerMemory as AnswerMemory
from .answers import AnswerScope as AnswerScope
from .answers import Remembering as Remembering
from .sealed import SealedAnswers as SealedAnswers
